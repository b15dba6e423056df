"""The panels: each draws one thing of the view, when it is seen and only then."""
