cimport cython

from bkbox.native cimport memory
from bkbox.native.histogram cimport Histogram

cdef int _ADD
cdef int _READ
cdef long long _ENDLESS
cdef Py_ssize_t _ADD_HEADERS
cdef Py_ssize_t _RESPONSE_HEADERS
cdef Py_ssize_t _ENTRY_HEADER
cdef int _CODES
cdef long long _LONGEST_WAIT
cdef long long _SHORTEST_WAIT


@cython.final
cdef class Stream:
    cdef readonly int kind
    cdef readonly long long first_ledger
    cdef readonly long long ledgers
    cdef readonly long long total
    cdef readonly long long window
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t frame_bytes
    cdef readonly Histogram latency
    cdef readonly object codes
    cdef long long[::1] _codes
    cdef readonly long long responded
    cdef readonly long long outstanding
    cdef public long long end
    cdef readonly long long counted_from
    cdef readonly double interval
    cdef long long due_base
    cdef bint is_blocked
    cdef long long free_since
    cdef readonly Histogram lateness
    cdef readonly long long next
    cdef long long next_ledger
    cdef long long next_entry
    cdef long long oldest
    cdef long long mask
    cdef long long[::1] sent_at
    cdef Py_ssize_t chunk_frames
    cdef unsigned char[::1] chunk
    cdef object chunk_view
    cdef Py_ssize_t chunk_start
    cdef Py_ssize_t chunk_end
    cdef unsigned char[::1] responses
    cdef object responses_view
    cdef Py_ssize_t filled

    @cython.locals(number=Py_ssize_t, at=Py_ssize_t)
    cdef _prepare_chunk(self, object master_key)

    cpdef count(self)

    cpdef pace(self, long long first_due, double interval, long long counted_from, long long end)

    @cython.locals(due="long long")
    cpdef long long due_by(self, long long now) noexcept

    @cython.locals(offset="long long")
    cpdef long long due_at(self, long long number) noexcept

    cpdef long long next_due(self) noexcept

    cpdef void block(self) noexcept

    @cython.locals(given_up="long long", number="long long")
    cpdef long long give_up(self, long long now)

    @cython.locals(
        count="long long",
        at=Py_ssize_t,
        ledger="long long",
        waiting="long long",
        due="long long",
    )
    cpdef fill(self, long long now)

    cdef long long _confirmed(self) noexcept

    @cython.locals(end=Py_ssize_t, at=Py_ssize_t, length=Py_ssize_t, limit=Py_ssize_t)
    cpdef process(self, Py_ssize_t size, long long now)

    @cython.locals(
        code=int, index="long long", entry="long long", number="long long", body=Py_ssize_t,
        body_size=Py_ssize_t
    )
    cdef _process_one(self, Py_ssize_t at, Py_ssize_t length, long long now)


@cython.final
cdef class Link:
    cdef readonly Stream stream
    cdef object link
    cdef object poll
    cdef readonly int number
    cdef bint waits

    @cython.locals(stream=Stream, size=Py_ssize_t)
    cpdef receive(self)

    @cython.locals(stream=Stream, sent=Py_ssize_t)
    cpdef send(self)


@cython.locals(link=Link, heard="long long", now="long long")
cpdef bint turn(object poll, dict links, long long until, long long silence) except? False


@cython.locals(
    link=Link,
    stream=Stream,
    heard="long long",
    now="long long",
    deepest="long long",
    wake="long long",
    backlog="long long",
    left="long long",
    unsent="long long",
    due="long long",
)
cpdef long long paced_turn(object poll, dict links, long long until, long long silence) except? -2
