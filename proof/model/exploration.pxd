cimport cython

from proof.model.fingerprints cimport Fingerprints, Memo

cdef unsigned long long _WORD
cdef Py_ssize_t _BLOCK
cdef int _BLOCK_SHIFT
cdef Py_ssize_t _FIRST_PROGRAM
cdef Py_ssize_t _SUCCESSORS_MAX
cdef int _WORLD
cdef int _CLIENT
cdef int _PART
cdef int _OUTLINE_BITS


@cython.final
cdef class Exploration:
    cdef readonly Py_ssize_t found
    cdef readonly Py_ssize_t generated
    cdef readonly unsigned long long broken
    cdef object _model
    cdef Py_ssize_t _rules
    cdef unsigned long long[::1] _masks
    cdef list _memos
    cdef int _world_bits
    cdef unsigned long long _world_mask
    cdef Py_ssize_t _clients
    cdef int _client_bits
    cdef unsigned long long _client_mask
    cdef Py_ssize_t _client_orders
    cdef unsigned long long[::1] _client_places
    cdef Py_ssize_t _parts
    cdef int _part_bits
    cdef unsigned long long _part_mask
    cdef Py_ssize_t _part_orders
    cdef unsigned long long[::1] _part_places
    cdef Memo _outcomes
    cdef Memo _outlines
    cdef Memo _verdicts
    cdef Memo _renamed_clients
    cdef Memo _renamed_parts
    cdef unsigned long long[::1] _program
    cdef Py_ssize_t _program_end
    cdef unsigned long long[::1] _to_upper
    cdef unsigned long long[::1] _to_lower
    cdef Py_ssize_t _count
    cdef unsigned long long[::1] _scratch
    cdef Fingerprints _seen
    cdef list _upper_blocks
    cdef list _lower_blocks
    cdef unsigned long long[::1] _read_upper
    cdef unsigned long long[::1] _read_lower
    cdef unsigned long long[::1] _write_upper
    cdef unsigned long long[::1] _write_lower
    cdef Py_ssize_t _read_block
    cdef Py_ssize_t _at

    @cython.locals(place=Py_ssize_t, index=Py_ssize_t)
    cpdef Py_ssize_t run(self, Py_ssize_t until) except -1

    @cython.locals(place=Py_ssize_t)
    cpdef tuple state(self, Py_ssize_t number)

    @cython.locals(number=Py_ssize_t, place=Py_ssize_t, index=Py_ssize_t)
    cpdef Py_ssize_t parent(
        self, unsigned long long upper, unsigned long long lower, Py_ssize_t first, Py_ssize_t end
    ) except -2

    cpdef tuple representative(self, unsigned long long upper, unsigned long long lower)

    @cython.locals(
        rule=Py_ssize_t,
        seen_upper="unsigned long long",
        seen_lower="unsigned long long",
        memo=Memo,
        at=Py_ssize_t,
        effects=Py_ssize_t,
        start=Py_ssize_t,
        deliveries=Py_ssize_t,
        _delivery=Py_ssize_t,
        part=int,
        _=Py_ssize_t,
    )
    cdef _expand(self, unsigned long long upper, unsigned long long lower)

    @cython.locals(
        shift=int,
        before="unsigned long long",
        at=Py_ssize_t,
        choices=Py_ssize_t,
        choice=Py_ssize_t,
        have=Py_ssize_t,
        index=Py_ssize_t,
        from_upper="unsigned long long",
        from_lower="unsigned long long",
        change="unsigned long long",
        place=Py_ssize_t,
    )
    cdef _combine(
        self, Py_ssize_t start, int part, unsigned long long delivery, unsigned long long lower
    )

    @cython.locals(place=Py_ssize_t)
    cdef _reach(self, unsigned long long upper, unsigned long long lower)

    @cython.locals(block=Py_ssize_t)
    cdef _select(self, Py_ssize_t number)

    @cython.locals(
        outlines="unsigned long long",
        place=int,
        shift=int,
        known="unsigned long long",
        _=Py_ssize_t,
    )
    cdef unsigned long long _broken_invariant(
        self, unsigned long long upper, unsigned long long lower
    ) except? 1000000

    @cython.locals(known="unsigned long long")
    cdef unsigned long long _outline(self, int kind, unsigned long long number) except? 1000000

    @cython.locals(client_order=Py_ssize_t, part_order=Py_ssize_t)
    cdef _fold(self, unsigned long long upper, unsigned long long lower)

    @cython.locals(
        new_upper="unsigned long long",
        new_lower="unsigned long long",
        number="unsigned long long",
        shift=int,
        place=int,
        client=Py_ssize_t,
        part=Py_ssize_t,
    )
    cdef _rename(
        self,
        unsigned long long upper,
        unsigned long long lower,
        Py_ssize_t client_order,
        Py_ssize_t part_order,
    )

    @cython.locals(number="unsigned long long")
    cdef unsigned long long _renamed_client(
        self, unsigned long long part_order, unsigned long long client
    ) except? 0

    @cython.locals(number="unsigned long long")
    cdef unsigned long long _renamed_part(
        self, unsigned long long client_order, unsigned long long part
    ) except? 0

    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _learn_effects(
        self, Memo memo, Py_ssize_t rule, unsigned long long upper, unsigned long long lower
    ) except -1

    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _learn_outcomes(
        self, unsigned long long delivery, unsigned long long part
    ) except -1

    cdef _emit(self, unsigned long long word)
