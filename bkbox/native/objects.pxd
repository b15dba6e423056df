# The compiled form of objects.py: the same functions, inline.

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject, PyTypeObject

cdef extern from "Python.h":
    PyTypeObject PyTuple_Type
    PyObject *PyTuple_GET_ITEM(object, Py_ssize_t) noexcept
    void PyObject_GC_UnTrack(void *) noexcept


cdef inline bytes part(const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end):
    return PyBytes_FromStringAndSize(<const char *>&data[start] if end > start else NULL, end - start)


cdef inline object record(object kind, tuple fields):
    arguments = (fields,)
    made = PyTuple_Type.tp_new(kind, <PyObject *>arguments, NULL)
    PyObject_GC_UnTrack(<PyObject *>made)
    return made


cdef inline object field(object record, Py_ssize_t number):
    return <object>PyTuple_GET_ITEM(record, number)
