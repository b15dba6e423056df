cimport cython

from bkbox.native cimport memory

cdef int _ADD
cdef int _READ
cdef long long _NO_LAC
cdef Py_ssize_t _KEY_BYTES
cdef Py_ssize_t _PREFIX
cdef unsigned int _OP_READ
cdef unsigned int _OP_ADD
cdef unsigned int _VERSION_AND_OPERATION
cdef unsigned int _ADD_PART
cdef unsigned int _READ_PART
cdef unsigned int _KEY_TAG
cdef Py_ssize_t _LEAST_MESSAGE
cdef Py_ssize_t _LEAST_BODY
cdef unsigned long long _I64_MAX
cdef unsigned long long _U64_MAX


@cython.final
cdef class _Cursor:
    cdef Py_ssize_t at
    cdef unsigned long long txn

    @cython.locals(value="unsigned long long", bits="unsigned long long", shift=int, byte="unsigned char")
    cdef unsigned long long number(self, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) noexcept

    cdef unsigned long long field(self, const unsigned char[::1] data, unsigned char tag, Py_ssize_t end) noexcept

    @cython.locals(operation="unsigned int", end_of_header=Py_ssize_t)
    cdef unsigned int header(self, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end) noexcept

    @cython.locals(tag="unsigned int", size="unsigned long long")
    cdef bint part(self, const unsigned char[::1] data, unsigned int operation, Py_ssize_t end) noexcept


@cython.final
cdef class FastRequestV3:
    cdef _Cursor _cursor
    cdef readonly unsigned long long txn
    cdef readonly long long ledger
    cdef readonly long long entry
    cdef readonly Py_ssize_t key_at
    cdef readonly Py_ssize_t body_at
    cdef readonly Py_ssize_t body_end

    @cython.locals(
        cursor=_Cursor,
        operation="unsigned int",
        ledger="unsigned long long",
        entry="unsigned long long",
        size="unsigned long long",
        at=Py_ssize_t,
    )
    cpdef int parse(self, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end) noexcept


@cython.final
cdef class FastResponseV3:
    cdef _Cursor _cursor
    cdef readonly unsigned long long txn
    cdef readonly int code
    cdef readonly long long ledger
    cdef readonly long long entry
    cdef readonly Py_ssize_t body_at
    cdef readonly Py_ssize_t body_end
    cdef readonly long long lac

    @cython.locals(
        cursor=_Cursor,
        operation="unsigned int",
        code="unsigned long long",
        ledger="unsigned long long",
        entry="unsigned long long",
        size="unsigned long long",
    )
    cpdef int parse(self, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end) noexcept


cdef long long _signed(unsigned long long value) noexcept

@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t _size(unsigned long long value) noexcept

cdef Py_ssize_t _put(unsigned char[::1] buffer, Py_ssize_t at, unsigned long long value) noexcept

cdef Py_ssize_t _put_header(
    unsigned char[::1] buffer, Py_ssize_t at, Py_ssize_t size, unsigned int operation, unsigned long long txn
) noexcept

cdef Py_ssize_t _response_part_size(unsigned int code, long long ledger, long long entry) noexcept

cdef Py_ssize_t _put_response_part(
    unsigned char[::1] buffer,
    Py_ssize_t at,
    unsigned int tag,
    Py_ssize_t size,
    unsigned int code,
    long long ledger,
    long long entry,
) noexcept

cpdef Py_ssize_t add_response_size(
    unsigned long long txn, unsigned int code, long long ledger, long long entry
) noexcept

@cython.locals(part=Py_ssize_t)
cpdef Py_ssize_t put_add_response(
    unsigned char[::1] buffer,
    Py_ssize_t at,
    unsigned long long txn,
    unsigned int code,
    long long ledger,
    long long entry,
) noexcept

@cython.locals(part=Py_ssize_t, size=Py_ssize_t)
cpdef Py_ssize_t read_head_size(
    unsigned long long txn,
    unsigned int code,
    long long ledger,
    long long entry,
    Py_ssize_t length,
    long long lac,
) noexcept

@cython.locals(part=Py_ssize_t, size=Py_ssize_t)
cpdef Py_ssize_t put_read_head(
    unsigned char[::1] buffer,
    Py_ssize_t at,
    unsigned long long txn,
    unsigned int code,
    long long ledger,
    long long entry,
    Py_ssize_t length,
    long long lac,
) noexcept

cpdef Py_ssize_t read_tail_size(long long lac) noexcept

cpdef Py_ssize_t put_read_tail(unsigned char[::1] buffer, Py_ssize_t at, long long lac) noexcept

cdef Py_ssize_t _read_part(
    unsigned int code, long long ledger, long long entry, Py_ssize_t length, long long lac
) noexcept

@cython.locals(fields=Py_ssize_t)
cpdef Py_ssize_t add_head_size(
    unsigned long long txn, long long ledger, long long entry, Py_ssize_t length
) noexcept

@cython.locals(fields=Py_ssize_t, part=Py_ssize_t)
cpdef Py_ssize_t put_add_head(
    unsigned char[::1] buffer,
    Py_ssize_t at,
    unsigned long long txn,
    long long ledger,
    long long entry,
    const unsigned char[::1] key,
    Py_ssize_t length,
) noexcept

cdef Py_ssize_t _add_fields(long long ledger, long long entry, Py_ssize_t length) noexcept
