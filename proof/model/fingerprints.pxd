cimport cython

cdef unsigned long long _WORD
cdef Py_ssize_t _FIRST_PLACES
cdef unsigned long long _STEP
cdef unsigned long long _MIX_1
cdef unsigned long long _MIX_2

@cython.locals(mixed="unsigned long long")
cpdef unsigned long long print_of(unsigned long long upper, unsigned long long lower)

cdef unsigned long long _mixed(unsigned long long word) noexcept


@cython.final
cdef class Fingerprints:
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t _places
    cdef unsigned long long[::1] _table

    @cython.locals(fingerprint="unsigned long long", found="unsigned long long", place=Py_ssize_t)
    cpdef bint add(self, unsigned long long upper, unsigned long long lower) except -1

    @cython.locals(
        old="unsigned long long[::1]",
        stored="unsigned long long",
        count=Py_ssize_t,
        index=Py_ssize_t,
        place=Py_ssize_t,
    )
    cdef _grow(self)


@cython.final
cdef class Memo:
    cdef Py_ssize_t _count
    cdef Py_ssize_t _places
    cdef unsigned long long[::1] _upper
    cdef unsigned long long[::1] _lower
    cdef unsigned long long[::1] _number

    @cython.locals(place=Py_ssize_t)
    cpdef unsigned long long get(self, unsigned long long upper, unsigned long long lower) noexcept

    @cython.locals(place=Py_ssize_t)
    cpdef put(self, unsigned long long upper, unsigned long long lower, unsigned long long number)

    cdef _resize(self, Py_ssize_t places)

    @cython.locals(
        upper="unsigned long long[::1]",
        lower="unsigned long long[::1]",
        number="unsigned long long[::1]",
        count=Py_ssize_t,
        place=Py_ssize_t,
    )
    cdef _grow(self)
