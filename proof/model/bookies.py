"""Actions of a bookie: it takes a request and responds, in one step.

An ordinary add is stored while the ledger is not fenced, a recovery add always. Whether a recovery read fences is an
option: it did not before 4.14. In limbo a bookie does not deny entries.
"""

from __future__ import annotations

from collections.abc import Iterator

from proof.model.network import Code, Kind, Message, done, is_earliest, sent, waiting
from proof.model.options import Options
from proof.model.state import ActorView
from proof.model.steps import Step


def moves(part: ActorView, name: str, options: Options) -> Iterator[Step]:
    """All steps that a bookie can take next."""
    per_client = options.corrections.per_client
    adds = [
        message
        for message in waiting(part.mail, Kind.ADD)
        if is_earliest(part.mail, message, per_client=per_client)
    ]
    for add in adds:
        if add.recovery or not part.fenced:
            yield from _accept(part, add, name, options)
    for add in adds:
        if part.fenced and not add.recovery:
            response = _added(add, Code.FENCED)
            yield from _respond(part, add, response, f"{name} refuses {_of(add)}: fenced", options)
    for request in waiting(part.mail, Kind.FENCE):
        response = Message(Kind.FENCED, request.client, lac=part.lac)
        words = f"{name} is fenced by {_client(request)} and tells LAC {part.lac}"
        yield from _respond(part._replace(fenced=True), request, response, words, options)
    for request in waiting(part.mail, Kind.READ):
        yield from _read(part, request, name, options)


def _accept(part: ActorView, add: Message, name: str, options: Options) -> Iterator[Step]:
    entries = tuple(sorted({*part.entries, (add.entry, add.body)}))
    after = part._replace(entries=entries, lac=add.lac)
    words = f"{name} stores {_of(add)}"
    return _respond(after, add, _added(add, Code.OK), words, options)


def _read(part: ActorView, request: Message, name: str, options: Options) -> Iterator[Step]:
    body = next((body for entry, body in part.entries if entry == request.entry), 0)
    if body:
        code, text = Code.OK, f"entry {request.entry}"
    elif part.limbo:
        code, text = Code.UNKNOWN, "unknown"
    else:
        code, text = Code.NO_SUCH_ENTRY, "no such entry"
    tells_id = body or options.corrections.responses_have_ids
    response = Message(
        Kind.RESPONSE, request.client, request.entry if tells_id else 0, body=body, code=code
    )
    after = part._replace(fenced=True) if options.recovery_reads_fence else part
    words = f"{name} answers {_client(request)}'s read of entry {request.entry}: {text}"
    return _respond(after, request, response, words, options)


def _respond(
    part: ActorView, request: Message, response: Message, words: str, options: Options
) -> Iterator[Step]:
    for mail in sent(done(part.mail, request), response, loss=options.message_loss):
        yield Step(words, part=part._replace(mail=mail))


def _added(add: Message, code: Code) -> Message:
    return Message(Kind.ADDED, add.client, add.entry, add.body, add.recovery, code=code)


def _of(add: Message) -> str:
    kind = "recovery add" if add.recovery else "add"
    return f"{_client(add)}'s {kind} of entry {add.entry}"


def _client(message: Message) -> str:
    return f"client {message.client + 1}"
