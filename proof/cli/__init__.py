"""The commands ``bkbox sim``, ``model-check`` and ``chaos``; ``bkbox/cli/main.py`` lists them in a checkout."""
