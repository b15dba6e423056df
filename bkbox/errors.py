"""The error tree: which party is at fault, and what to do about it.

Every error of bkbox is one of the seven kinds below; code raises the leaves, callers may catch a kind.

===================  ==================================================================================
kind                 the party at fault, and what to do
===================  ==================================================================================
CallerError          the arguments or the order of calls are wrong; change the call
PeerError            the other end of a connection broke the protocol; the connection is closed
DiskError            a disk, or its contents; the disk's worker decides, operators are told
MetadataError        the metadata store, or its contents
LedgerError          the outcome of an operation on a ledger over its quorum of bookies
OperatorError        the host is not in the state that a command or a boot needs; the text says what to run
BugError             an invariant of bkbox does not hold; report it, no result can be trusted
===================  ==================================================================================

``may_have_taken_effect`` is true if a request that failed with this error may have been carried out all the same.
"""

from __future__ import annotations


class BkboxError(Exception):
    """Base of all errors; never raised itself."""

    may_have_taken_effect: bool = False


class CallerError(BkboxError):
    """The caller is at fault: bad arguments, or calls in the wrong order."""


class PeerError(BkboxError):
    """The other end of a connection broke the protocol."""


class DiskError(BkboxError):
    """A disk failed, is full, or holds damaged data."""


class MetadataError(BkboxError):
    """The metadata store failed, or holds data that cannot be decoded."""


class LedgerError(BkboxError):
    """An operation on a ledger did not succeed over its quorum."""


class OperatorError(BkboxError):
    """The host is not in the required state; the message names the command that mends it."""


class BugError(BkboxError):
    """An invariant of bkbox does not hold."""


# ---- caller -----------------------------------------------------------------------------------------


class InvalidIdError(CallerError):
    """A ledger id, entry id or bookie id that cannot exist."""


class InvalidArgumentError(CallerError):
    """An argument of a call has a wrong type or is out of range; the message names it. Nothing was done."""


class QuorumSizeError(CallerError):
    """Ensemble size, write quorum and ack quorum do not satisfy E >= WQ >= AQ >= 1."""


class ModelTooLargeError(CallerError):
    """A model to be searched has more different parts than a state can hold: choose smaller sizes."""


class EntryTooLargeError(CallerError):
    """The entry does not fit into one frame."""


class PayloadTypeError(CallerError, TypeError):
    """The payload of an append is not bytes."""


class EntryIdError(CallerError):
    """An entry with an id chosen by the caller that was appended before; or ids are given for some of a ledger's
    entries and not for others.
    """


class WindowFullError(CallerError):
    """The writer's window of unacknowledged bytes is full; wait for space (``drain``) first."""


class ConfigError(CallerError):
    """The configuration has problems; ``problems`` lists all of them, each with its place.

    A text has one problem in each line, as it comes from another process.
    """

    def __init__(self, problems: list[str] | str) -> None:
        self.problems = problems.splitlines() if isinstance(problems, str) else problems
        super().__init__("\n".join(self.problems))


class UnknownOptionError(ConfigError, TypeError):
    """``connect`` or a data source was given an unknown option; ``problems`` names the nearest known one."""


class NoSuchJobError(CallerError):
    """There is no job with this id, or it ended too long ago."""


class NoSuchSegmentError(CallerError):
    """No disk of the bookie has a segment with this id."""


class JobRefusedError(CallerError):
    """The job cannot be started, or does not accept the action; the message gives the reason and the possible
    actions.
    """


class BadRequestError(CallerError):
    """A malformed request of the admin API; the message says what is wrong and where. Nothing was done."""


class NothingToEndError(CallerError):
    """Ending the ledger with loss accepted would change nothing, or give up more than necessary; the message gives
    the reason.
    """


class NotConnectedError(CallerError, AttributeError):
    """The result of ``connect`` was used without ``async with``."""


class HandleClosedError(CallerError):
    """The client, ledger handle or connection was closed before this call."""


class WrongLoopError(CallerError):
    """A client or a handle of it was used outside its event loop, or after that was closed."""


class ForkedError(CallerError):
    """A client or a handle of it was used in a process that was forked after it had connected."""


class SequenceError(CallerError):
    """A record's sequence number is not the next one of its producer, or its producer has no name."""


class CompressionError(CallerError):
    """The library of a compression is not installed; the message names it."""


# ---- peer -------------------------------------------------------------------------------------------


class FrameError(PeerError):
    """A frame that cannot be decoded; the connection it came from has to be closed."""


class AuthenticationError(PeerError):
    """The other end of a connection could not authenticate itself, or rejects this one; the message
    gives the reason.
    """


class DigestError(PeerError):
    """An entry whose digest or ids do not match the request."""


class EncodingError(PeerError):
    """Stored or transmitted bytes (metadata, cookie, availability, …) that cannot be decoded."""


class NoSuchRouteError(PeerError):
    """A bookie does not know a request of the admin API: it runs another version of bkbox."""


class ConnectionLostError(PeerError):
    """The connection to a bookie was lost while a request was in flight."""

    may_have_taken_effect = True


class RequestTimeoutError(PeerError):
    """A bookie did not respond in time."""

    may_have_taken_effect = True


# ---- disk -------------------------------------------------------------------------------------------


class DiskFullError(DiskError):
    """No space left on the disk."""


class DiskFailedError(DiskError):
    """The disk cannot be trusted any more (a failed write or fsync); it accepts no writes until the next start."""


class DamagedError(DiskError):
    """Stored bytes whose checksum or form is wrong: the data was there and cannot be read."""


class IndexDamagedError(DamagedError):
    """The index of a disk is missing or broken: it has to be rebuilt from the entry log."""


class FormatVersionError(DiskError):
    """A file of a newer format than this version of bkbox reads."""


# ---- metadata ---------------------------------------------------------------------------------------


class LedgerExistsError(MetadataError):
    """A ledger with this id exists already."""


class NoSuchLedgerError(MetadataError):
    """The metadata store has no ledger with this id."""


class NoSuchLogError(MetadataError):
    """The metadata store has no log with this name."""


class VersionConflictError(MetadataError):
    """A compare-and-set write lost: the stored version is not the expected one."""


class MetadataUnavailableError(MetadataError):
    """The metadata store cannot be reached or does not respond in time."""

    may_have_taken_effect = True


# ---- ledger -----------------------------------------------------------------------------------------


class LedgerFencedError(LedgerError):
    """Another client recovers or has recovered the ledger; entries not yet acknowledged may or may not be in it."""

    may_have_taken_effect = True


class LedgerClosedError(LedgerError):
    """The ledger is closed; it accepts no more entries."""


class NotEnoughBookiesError(LedgerError):
    """Fewer bookies are available than the ensemble or quorum needs."""


class NoSuchEntryError(LedgerError):
    """Every bookie of the write set said that it does not have the entry, or the entry lies past the end."""


class UnknownEntryError(LedgerError):
    """No bookie returned the entry and at least one could not say that it does not exist."""


class RecoveryAbortedError(LedgerError):
    """Recovery stopped with nothing closed, because some answers were unknown; it may be retried."""


class LeftToWriterError(LedgerError):
    """Re-replication leaves an open ledger to its writer for a while; ``wait_s``: the remaining seconds."""

    def __init__(self, text: str, wait_s: float) -> None:
        super().__init__(text)
        self.wait_s = wait_s


class UnauthorizedError(LedgerError):
    """The password (master key) is not the ledger's."""


class WrongDigestTypeError(LedgerError):
    """The ledger's entries have another type of digest than the caller expects."""


class NotLeaderError(LedgerError):
    """Another writer has opened the log; records that were not acknowledged may or may not be in it."""

    may_have_taken_effect = True


class LogTruncatedError(LedgerError):
    """The position lies before the first record left of the log."""


class LogLedgerLostError(LedgerError):
    """A ledger of a log was deleted, and not by a truncation of the log; the message says what to do.

    ``next_ledger``: the ledger after it, from whose first entry on the log can be read; None: there is none yet.
    """

    def __init__(self, text: str, next_ledger: int | None) -> None:
        super().__init__(text)
        self.next_ledger = next_ledger


class LedgerNotMovedError(LedgerError):
    """A ledger cannot be moved from one disk of its bookie to another now; it stays where it was."""


class NotDurableError(LedgerError):
    """Entries are acknowledged, and not known to be on the disks of an ack quorum of bookies."""


class AddFailedError(LedgerError):
    """An entry could not be written to its ack quorum."""

    may_have_taken_effect = True


# ---- operator ---------------------------------------------------------------------------------------


class CookieMismatchError(OperatorError):
    """The cookies on the disks, in the metadata store and in the configuration differ."""


class BookieRunningError(OperatorError):
    """The command needs the bookie stopped, and it runs (or another instance holds its disks)."""


class BookieNotRunningError(OperatorError):
    """The command needs the bookie running, and no process responds on its admin socket."""


class BookieUnresponsiveError(OperatorError):
    """A bookie runs and does not answer in time: it hangs or is stopped, and is not to be started again."""


class BootError(OperatorError):
    """The bookie cannot start; the message gives the reason and the remedy."""


class DemoFailedError(OperatorError):
    """A step of the demo did not have the expected result."""


class HostError(OperatorError):
    """A requirement of a command is missing on this host, or not allowed to its user."""


class BenchError(OperatorError):
    """A benchmark could not be completed; its partial measurements are meaningless."""


class DiskChangeError(OperatorError):
    """A disk cannot be added, drained, replaced or removed like this; the message gives the reason and the remedy.
    Nothing was changed.
    """


class AccessDeniedError(OperatorError):
    """The admin API does not allow this to the caller; the message says what would be needed."""


class JobCancelledError(OperatorError):
    """A job was cancelled; its code has left nothing half done."""


class ChaosError(OperatorError):
    """A chaos run could not be carried out; that proves nothing about the bookies under test."""
