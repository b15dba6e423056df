"""The panels: each draws one part of the view, only while it is visible."""
