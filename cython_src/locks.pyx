"""Locks: one call at a time for each graph, and no change of weights during a run of several steps.

They are compiled, so that no signal handler runs between the acquisition of a lock and the note of its holder. They
call a function under the lock. They are no context managers, since CPython 3.14 runs signal handlers between the entry
of a ``with`` and its block. A handler that raises therefore never leaves a lock taken. Without the GIL, critical
sections make steps that belong together atomic.
"""

import threading
import time

from libc.stdint cimport uintptr_t

cimport cython

from rlx.errors import BusyError, ClosedError, describe


cdef extern from "try_lock.h" nogil:
    ctypedef struct rlx_try_lock:
        pass
    const uintptr_t RLX_ME
    const uintptr_t RLX_CLOSED
    uintptr_t rlx_holder(const rlx_try_lock* owner)
    bint rlx_acquire(rlx_try_lock* owner)
    void rlx_release(rlx_try_lock* owner, uintptr_t to)


@cython.final
cdef class TryLock:
    """A lock that is refused instead of waited for. A call holds it from its first argument to its last result.

    ``lock.call(function, ...)`` never waits. Compiled code acquires and releases the lock by one assignment each to
    the structure at ``address``.

    Args:
        what: Name of the locked object in messages.
        hint: Advice for a second thread.
    """

    cdef rlx_try_lock state
    cdef str _what
    cdef str _hint

    def __cinit__(self, str what, str hint):
        self._what, self._hint = what, hint

    @property
    def address(self):
        """Address of the ``struct rlx_try_lock`` (try_lock.h) for compiled code."""
        return <uintptr_t>&self.state

    @cython.binding(False)
    def call(self, function, /, *args, **kwargs):
        """Calls a function under the lock and returns its result. The function may close the lock.

        Raises:
            BusyError: A call is under way.
            ClosedError: The lock is closed.
        """
        if not rlx_acquire(&self.state):
            self.refuse()
        try:
            return function(*args, **kwargs)
        finally:
            if rlx_holder(&self.state) != RLX_CLOSED:
                rlx_release(&self.state, 0)

    def close(self):
        """Refuses every later call."""
        rlx_release(&self.state, RLX_CLOSED)

    def refuse(self):
        """Raises the error that says why no call can be made now.

        Raises:
            BusyError: A call is under way.
            ClosedError: The lock is closed.
        """
        cdef uintptr_t holder = rlx_holder(&self.state)
        if holder == RLX_CLOSED:
            raise ClosedError(describe(f"{self._what} is closed", hint="compile the graph again"))
        if holder == RLX_ME:
            raise _nested(f"{self._what} is already running")
        raise BusyError(
            describe(f"{self._what} is already running in another thread", hint=self._hint)
        )


cdef _nested(str what):
    """Makes the error for a call inside another call of the same thread, which would wait for itself."""
    return BusyError(
        describe(
            f"{what}, further up in this thread",
            got="a call from a signal handler, a custom operation or __array__",
            hint="make the call when the one that is under way has returned",
        )
    )


@cython.final
cdef class ReentrancyCheckedLock:
    """A mutex that raises an error where a thread would wait for itself.

    Args:
        what: Name of the locked object in messages.
    """

    cdef object _lock
    cdef rlx_try_lock _state
    cdef str _what

    def __cinit__(self, str what):
        self._what, self._lock = what, threading.Lock()

    def call(self, function, /, *args, **kwargs):
        """Waits for the lock, calls a function under it and returns its result.

        Raises:
            BusyError: This thread holds the lock already.
        """
        if rlx_holder(&self._state) == RLX_ME:
            raise _nested(f"{self._what} is already in use")
        self._lock.acquire()
        rlx_acquire(&self._state)
        try:
            return function(*args, **kwargs)
        finally:
            rlx_release(&self._state, 0)
            self._lock.release()


# How long a thread sleeps before it looks again whether it may go on, in seconds.
cdef double _NAP = 0.0005


@cython.final
cdef class ReadWriteLock:
    """A lock with many readers or one writer: runs of several steps read weights, and changes of weights write them."""

    cdef dict _readers
    cdef Py_ssize_t _writers

    def __cinit__(self):
        self._readers = {}

    def read(self, function, /, *args, **kwargs):
        """Calls a function as a reader, once no writer is active or waits, and returns its result.

        A read inside a read of the same thread begins at once.
        """
        while not self._begin_read():
            time.sleep(_NAP)
        try:
            return function(*args, **kwargs)
        finally:
            self._end_read()

    def write(self, function, /, *args, **kwargs):
        """Calls a function as the only user, once all readers have ended, and returns its result.

        Raises:
            BusyError: This thread reads already, and would wait for itself.
        """
        self._announce_write()
        try:
            while self._has_readers():
                time.sleep(_NAP)
            return function(*args, **kwargs)
        finally:
            self._end_write()

    cdef bint _begin_read(self) except -1:
        """Begins a read, unless a writer is active or waits. Returns whether it began."""
        cdef uintptr_t me = RLX_ME
        with cython.critical_section(self):
            if self._writers and me not in self._readers:
                return False
            self._readers[me] = self._readers.get(me, 0) + 1
        return True

    cdef int _end_read(self) except -1:
        cdef uintptr_t me = RLX_ME
        with cython.critical_section(self):
            count = self._readers.pop(me) - 1
            if count:
                self._readers[me] = count
        return 0

    cdef int _announce_write(self) except -1:
        """Lets no further read begin."""
        cdef uintptr_t me = RLX_ME
        with cython.critical_section(self):
            if me in self._readers:
                raise BusyError(
                    describe(
                        "weights can't change inside a run of a clone that shares them",
                        hint="set them when the run has returned",
                    )
                )
            self._writers += 1
        return 0

    cdef bint _has_readers(self) except -1:
        """Returns whether reads are under way."""
        with cython.critical_section(self):
            return len(self._readers) > 0

    cdef int _end_write(self) except -1:
        with cython.critical_section(self):
            self._writers -= 1
        return 0
