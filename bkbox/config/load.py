"""Loads, checks and writes a configuration: one TOML file of flat keys, one schema, environment variables on top.

Rules:

- The fields of ``Config`` (schema.py) are the schema: kind, default and meaning of a key.
- A value comes from the environment (``BKBOX_<KEY>``), else from the file, else it is the default;
  ``Config.provenance`` says which.
- All problems are found in one pass, each with its place. An unknown key or ``BKBOX_`` variable is
  a problem: a setting that is silently ignored is worse than one that stops a start.
- A relative path, also in the metadata URI or of a rack map, counts from the folder of the file.

The only check of the file system is of symbolic links, to see which folders are the same.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, replace
from pathlib import Path
from typing import Any

from bkbox.base.host.small_files import read_small
from bkbox.base.ids import BookieId
from bkbox.base.text import quoted
from bkbox.config import security
from bkbox.config.metadata_uri import ZNODE_PREFIX
from bkbox.config.schema import (
    SCHEMA,
    Config,
    address_of,
    bookie_id_problem,
    checked,
    kind_of,
)
from bkbox.config.values import REQUIRED, Folder, WrongValueError, join_address, key_lines, to_toml
from bkbox.errors import ConfigError

ENVIRONMENT_PREFIX = "BKBOX_"

_OTHER_VARIABLES = frozenset(
    {
        *("BKBOX_LEDGER_PASSWORD", "BKBOX_KERNEL", "BKBOX_CLIENT_FILE"),
        *("BKBOX_BOOKIE", "BKBOX_TOKEN_FILE", "BKBOX_CONFIG"),
    }
)
"""Environment variables with the prefix that are not keys: commands read them."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and its place: a file with or without a line, or a variable."""

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


def load(path: Path, environ: Mapping[str, str]) -> Config:
    """Loads the configuration from a file, with the environment on top. Raises ConfigError with all problems."""
    reader = _Reader(path, environ)
    if reader.problems:
        raise ConfigError([str(problem) for problem in reader.problems])
    provenance = {name: reader.places[name] for name in SCHEMA}
    return Config(**reader.values, path=path, provenance=provenance)


def validate(path: Path, environ: Mapping[str, str]) -> list[Problem]:
    """All problems that ``load`` would raise; empty if it succeeds."""
    return _Reader(path, environ).problems


def in_order(problems: Iterable[Problem], path: Path) -> list[Problem]:
    """Sorts problems: keys that the file lacks, then its lines, then variables."""

    def order(problem: Problem) -> tuple[int, int]:
        file, _, line = problem.place.rpartition(":")
        if file == str(path) and line.isdecimal():
            return 1, int(line)
        return 0 if problem.place == str(path) else 2, 0

    return sorted(problems, key=order)


def validate_new(text: str, path: Path, environ: Mapping[str, str]) -> list[Problem]:
    """All problems of a file that is about to be written; the place of a problem is the key instead of the line."""
    keys = {f"{path}:{line}": name for name, line in key_lines(text).items()}
    found = _Reader(path, environ, text).problems
    return [replace(problem, place=keys.get(problem.place, problem.place)) for problem in found]


def parse_set(text: str) -> tuple[str, object]:
    """Parses ``key=value`` into a key and its value in the form of TOML. Raises ConfigError."""
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals:
        raise ConfigError([f"{quoted(text)} is not of the form key=value"])
    if key not in SCHEMA:
        raise ConfigError([unknown_key(key)])
    try:
        parsed = kind_of(SCHEMA[key]).from_text(value)
        checked(SCHEMA[key], parsed)
    except WrongValueError as error:
        raise ConfigError([f"{key} {error}"]) from None
    return key, parsed


def render(values: Mapping[str, object]) -> str:
    """Formats these values as a commented TOML file; keys without one show their default.

    Values are in the form of TOML, as parse_set gives them. Raises ConfigError for unknown keys
    and for values that a key cannot have.
    """
    problems = []
    for key, value in values.items():
        try:
            checked(SCHEMA[key], value)
        except KeyError:
            problems.append(unknown_key(key))
        except WrongValueError as error:
            problems.append(f"{key} {error}")
    if problems:
        raise ConfigError(problems)
    blocks = ["# Configuration of a bookie of bkbox. `bkbox config validate` checks it.\n"]
    for name, item in SCHEMA.items():
        default = item.metadata["default"]
        if name in values:
            line = f"{name} = {to_toml(values[name])}"
        else:
            line = f"# {name} = {'' if default is REQUIRED else to_toml(default)}".rstrip()
        blocks.append(f"# {item.metadata['doc']}\n{line}\n")
    return "\n".join(blocks)


class _Reader:
    """One pass over file and environment: collects values, their sources, and all problems."""

    def __init__(self, path: Path, environ: Mapping[str, str], text: str | None = None) -> None:
        """``text``: used instead of the file's content."""
        self.problems: list[Problem] = []
        self.values: dict[str, Any] = {}
        self.places: dict[str, str] = {}
        self._path = path
        self._text = text
        self._folder = Path(os.path.abspath(path)).parent
        document = self._document()
        if document is None:
            return
        raw: dict[str, object] = {}
        for name, value in document.items():
            if name in SCHEMA:
                raw[name] = value
            else:
                self._problem(self.places[name], unknown_key(name))
        raw |= self._from_environment(environ)
        for name, item in SCHEMA.items():
            self._set(name, item, raw)
        self._derive()
        self._check_together()
        self.problems = in_order(self.problems, path)

    def _problem(self, place: str, text: str) -> None:
        self.problems.append(Problem(place, text))

    def _document(self) -> dict[str, object] | None:
        try:
            # With the byte order mark that editors of Windows write.
            text = read_small(self._path).decode("utf-8-sig") if self._text is None else self._text
            document = tomllib.loads(text)
        except OSError as error:
            self._problem(str(self._path), f"cannot be read: {error.strerror}")
            return None
        except UnicodeDecodeError as error:
            self._problem(str(self._path), f"byte {error.start} is not UTF-8")
            return None
        # TOMLDecodeError, or an absurdly long number, or absurdly many brackets
        except (ValueError, RecursionError) as error:
            reason, line = _syntax_error(str(error), text)
            self._problem(f"{self._path}:{line}", f"not TOML: {reason}")
            return None
        lines = key_lines(text)
        self.places = {name: f"{self._path}:{lines[name]}" for name in document}
        return document

    def _from_environment(self, environ: Mapping[str, str]) -> dict[str, object]:
        found: dict[str, object] = {}
        variables = {ENVIRONMENT_PREFIX + name.upper(): name for name in SCHEMA}
        for variable, text in sorted(environ.items()):
            if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _OTHER_VARIABLES:
                continue
            place = f"environment variable {variable}"
            if variable not in variables:
                self._problem(place, unknown_key(variable, variables))
                continue
            name = variables[variable]
            self.places[name] = place
            try:
                found[name] = kind_of(SCHEMA[name]).from_text(text)
            except WrongValueError as error:
                self._problem(place, f"{name} {error}")
                found[name] = None
        return found

    def _set(self, name: str, item: Field[Any], raw: Mapping[str, object]) -> None:
        value = raw.get(name, item.metadata["default"])
        if value is None:
            return  # a variable that was reported already
        if value is REQUIRED:
            self._problem(str(self._path), f"{name} is missing: {item.metadata['doc']}")
            return
        self.places.setdefault(name, "default")
        try:
            self.values[name] = checked(item, value)
        except WrongValueError as error:
            self._problem(self.places[name], f"{name} {error}")

    def _derive(self) -> None:
        """Makes paths absolute, and fills in values that depend on other keys."""
        values = self.values
        if "disks" in values:
            values["disks"] = tuple(self._absolute(disk) for disk in values["disks"])
        for name, item in SCHEMA.items():
            if isinstance(kind_of(item), Folder) and values.get(name) is not None:
                values[name] = self._absolute(values[name])
        if "metadata" in values:
            scheme, _, path = values["metadata"].partition(":")
            if scheme == "sqlite":
                values["metadata"] = f"{scheme}:{self._absolute(Path(path))}"
        rack_map = values.get("rack_map")
        if rack_map and not rack_map.startswith(ZNODE_PREFIX):
            values["rack_map"] = str(self._absolute(Path(rack_map)))
        if "listen" not in values:
            return
        host, port = address_of(values["listen"])
        if values.get("advertised_host") == "":
            values["advertised_host"] = host
            if host in ("0.0.0.0", "::"):  # noqa: S104 - it is refused here
                self._problem(
                    self.places["listen"],
                    f"listen {values['listen']} is no address for clients: set advertised_host",
                )
        if values.get("bookie_id") == "" and "advertised_host" in values:
            self._name_bookie(values["advertised_host"], port)

    def _name_bookie(self, host: str, port: int) -> None:
        if port == 0:
            text = "listen with port 0 gives no lasting name: set bookie_id"
            self._problem(self.places["listen"], text)
            return
        name = join_address(host, port)
        problem = bookie_id_problem(name)
        if problem is None:
            self.values["bookie_id"] = BookieId(name)
        else:
            self._problem(self.places["listen"], f"{problem}; set bookie_id")

    def _absolute(self, path: Path) -> Path:
        return Path(os.path.normpath(self._folder / path))

    def _check_together(self) -> None:
        """Checks that involve several keys."""
        values = self.values
        if values.get("ack_after") == "journal" and values.get("journal", ...) is None:
            self._problem(self.places["ack_after"], 'ack_after = "journal" needs journal')
        if values.get("topology_script") and values.get("rack_map"):
            self._problem(
                self.places["topology_script"],
                "topology_script and rack_map both say racks: give one",
            )
        if values.get("http_listen") and values.get("http_token_file", ...) is None:
            self._problem(
                self.places["http_listen"],
                "http_listen needs http_token_file: every caller could do everything; make one with "
                "(umask 077; openssl rand -hex 32 > FILE)",
            )
        for name, text in security.problems(values):
            self._problem(self.places[name], text)
        for smaller, larger in (
            ("frame_bytes_max", "connection_inflight_bytes_max"),
            ("restart_backoff_initial_s", "restart_backoff_max_s"),
            ("repair_retry_initial_s", "repair_retry_max_s"),
        ):
            if smaller in values and larger in values and values[smaller] > values[larger]:
                place = self.places[smaller]
                self._problem(
                    self.places[larger] if place == "default" else place,
                    f"{smaller} ({values[smaller]}) is more than {larger} ({values[larger]})",
                )
        resume = values.get("disk_usage_resume", 0.0)
        if resume >= values.get("disk_usage_max", 2.0):
            self._problem(
                self.places["disk_usage_resume"],
                f"disk_usage_resume ({resume}) has to be less than disk_usage_max "
                f"({values['disk_usage_max']}): a disk at the bound would turn to and fro",
            )
        self._check_folders()

    def _check_folders(self) -> None:
        """Checks that each disk and the journal have separate folders, none within another."""
        named = [("disks", disk) for disk in self.values.get("disks", ())]
        if self.values.get("journal") is not None:
            named.append(("journal", self.values["journal"]))
        for index, (name, path) in enumerate(named):
            for _, other in named[:index]:
                relation = _relation(path, other)
                if relation is not None:
                    self._problem(self.places[name], f"{name}: {path} {relation}")
                    break


def _relation(path: Path, other: Path) -> str | None:
    """A description of how two folders overlap, symbolic links followed; None if they do not."""
    real, real_other = Path(os.path.realpath(path)), Path(os.path.realpath(other))
    if real == real_other:
        return "is named twice" if path == other else f"is the same folder as {other}"
    if real.is_relative_to(real_other):
        return f"lies within {other}"
    if real_other.is_relative_to(real):
        return f"contains {other}"
    return None


def unknown_key(name: str, known: Iterable[str] = SCHEMA) -> str:
    """The message about an unknown key, with the key that may have been meant."""
    import difflib  # needed for a mistyped key only

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"unknown key {name}" + (f"; did you mean {near[0]}?" if near else "")


_REASONS = {"Cannot overwrite a value": "a key is there twice"}
"""Of tomllib's reasons those that say nothing to an operator."""


def _syntax_error(text: str, document: str) -> tuple[str, int]:
    """Reason and line of tomllib's error, which has the line in its text only."""
    reason, _, position = text.partition(" (at ")
    reason = _REASONS.get(reason, reason)
    if position.startswith("line "):
        return reason, int(position.removeprefix("line ").partition(",")[0])
    return reason, document.count("\n") + 1
