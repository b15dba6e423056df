cimport cython

from bkbox.storage.index.memtable cimport EntryLookup, EntryLocation

cdef Py_ssize_t _RECORD_HEADER_BYTES
cdef long long _GAP_MAX
cdef long long _HOLE_BYTES

@cython.locals(
    place=EntryLocation,
    after="long long",
    total="long long",
    segment="long long",
    start="long long",
    end="long long",
    record_end="long long",
)
cpdef stretch(EntryLookup finder, long long ledger, long long entry, long long last, long long size)
