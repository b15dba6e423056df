"""Checks the output of a command with ``-o json`` against its schema from ``bkbox schema``."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator

from bkbox.cli.main import main
from bkbox.cli.schema import schema_of, shapes_of


def document(text: str, *command: str) -> Any:
    """The one document of standard output; ``command``: its words, without bkbox."""
    found = json.loads(text)
    Draft202012Validator(schema_of(shapes_of(main, command), "")).validate(found)
    return found
