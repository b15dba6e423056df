cimport cython

from bkbox.native cimport memory
from bkbox.frontend.loop.routing cimport DiskQueue, Routes
from bkbox.wire.v3_fast_path cimport FastRequestV3

cdef Py_ssize_t _PREFIX
cdef Py_ssize_t _SEGMENT_HEADER
cdef Py_ssize_t _READ_BUFFER_BYTES
cdef Py_ssize_t _LARGE_BYTES
cdef Py_ssize_t _UNSENT_HIGH
cdef Py_ssize_t _UNSENT_LOW
cdef Py_ssize_t _UNSENT_MAX
cdef long long _READ_COST_LEAST
cdef long long _READ_COST_FIRST
cdef Py_ssize_t _PARTS_MAX
cdef unsigned int _IN
cdef unsigned int _OUT
cdef int _SLOTS
cdef int _INFLIGHT
cdef int _WRITING
cdef int _YIELDING
cdef int _SLOW_FRAMES_MAX
cdef int _SLOW_FRAMES_ALL_MAX
cdef int _V2_ADD
cdef int _V2_READ
cdef int _RECOVERY_ADD
cdef int _DO_FENCING
cdef Py_ssize_t _V2_ADD_BYTES
cdef Py_ssize_t _V2_READ_BYTES
cdef unsigned char _V3_FIRST
cdef int _ADD
cdef int _READ
cdef int _RECOVERY


@cython.final
cdef class SharedState:
    cdef readonly Routes routes
    cdef public long long buffered
    cdef public long long buffered_max
    cdef long long collected
    cdef readonly list due
    cdef readonly list resumed
    cdef readonly list deferred
    cdef public int slow_left
    cdef public double slow_s
    cdef double slow_since_s
    cdef object cpu_s
    cdef public bint has_fast
    cdef FastRequestV3 fast_v3
    cdef bytearray read_buffer
    cdef object read_view
    cdef bytearray spare_buffer

    cpdef bint above_hard_limit(self) noexcept
    cpdef bint above_soft_limit(self) noexcept
    cdef bint has_space(self, Py_ssize_t size) noexcept
    cdef bint turn_budget_spent(self) noexcept

    @cython.locals(spare_buffer=bytearray)
    cdef bytearray buffer(self, Py_ssize_t size)

    cdef recycle(self, bytearray buffer)


cdef class Connection:
    cdef readonly unsigned int number
    cdef readonly object sock
    cdef readonly str peer
    cdef readonly bint closed
    cdef public bint is_v3
    cdef public int allows
    cdef readonly object tls
    cdef readonly unsigned int received
    cdef readonly unsigned int sent
    cdef Py_ssize_t _sealed
    cdef object _poll
    cdef SharedState _common
    cdef Py_ssize_t _frame_bytes_max
    cdef long long _inflight_bytes_max
    cdef bytearray _partial_frame
    cdef object _partial_view
    cdef Py_ssize_t _partial_size
    cdef Py_ssize_t _partial_capacity
    cdef int _blocked
    cdef long long _pending
    cdef long long _cost
    cdef long long _read_cost
    cdef long long _ledger
    cdef list _parts
    cdef object _unsent
    cdef Py_ssize_t _unsent_size
    cdef bint _is_due
    cdef bint _resumes
    cdef unsigned int _interest

    cpdef close(self)
    cdef ready(self, unsigned int events)
    cdef resume(self)
    cdef _drain(self)
    cdef go_on_yielded(self)

    @cython.locals(interest="unsigned int", unsent=Py_ssize_t)
    cdef end_turn(self)

    cdef Py_ssize_t _note_sealed(self, Py_ssize_t sealed) noexcept
    cdef void _be_due(self)
    cdef void _go_on(self)
    cdef void _unblock(self, int reason)

    @cython.locals(size=Py_ssize_t, before=Py_ssize_t, partial_frame=bytearray)
    cdef _receive(self)

    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t _receive_into(self, object view) except -1

    @cython.locals(common=SharedState)
    cdef _work(self, bytearray data, Py_ssize_t filled, bint is_partial)

    @cython.locals(at=Py_ssize_t)
    cdef _process(self, bytearray data, Py_ssize_t filled, bint is_partial)

    @cython.locals(remaining=Py_ssize_t)
    cdef bint _move_up(self, bytearray data, Py_ssize_t at, Py_ssize_t filled) except -1

    @cython.locals(common=SharedState, size=Py_ssize_t, capacity=Py_ssize_t, frame_bytes=Py_ssize_t, partial_frame=bytearray)
    cdef _keep(self, bytearray data, Py_ssize_t at, Py_ssize_t filled)

    cdef _drop_partial_frame(self)

    @cython.locals(
        common=SharedState,
        octets_of="const unsigned char[::1]",
        at=Py_ssize_t,
        end=Py_ssize_t,
        length=Py_ssize_t,
        kind=int,
        slow=int,
        lane=DiskQueue,
    )
    cdef Py_ssize_t _hand_on(self, bytearray data, Py_ssize_t filled) except -1

    @cython.locals(size=Py_ssize_t, operation=int, flags=int, kind=int, fast_v3=FastRequestV3)
    cdef int _fast_path_kind(self, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end) noexcept

    cdef void _charge(self, long long cost) noexcept
    cdef _release(self, long long count)

    @cython.locals(size="long long")
    cdef _on_responses(self, object frames, long long count)

    @cython.locals(common=SharedState, size=Py_ssize_t)
    cdef _send(self, object frames)

    @cython.locals(common=SharedState, parts=list, sent=Py_ssize_t, size=Py_ssize_t)
    cdef _send_parts(self)

    cdef Py_ssize_t _send_at_once(self, list parts) except -1

    @cython.locals(sent=Py_ssize_t)
    cdef _send_unsent(self)


@cython.locals(
    data="const unsigned char[::1]", at=Py_ssize_t, size=Py_ssize_t, start=Py_ssize_t, stream=Connection
)
cpdef deliver(object slot, Py_ssize_t used, dict streams)
