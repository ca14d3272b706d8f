"""Locks: one call at a time for each graph, and no change of weights during a run of several steps.

They are compiled, so that no signal handler runs between taking a lock and noting who holds it. They call what is done
under the lock, and are no context managers: CPython 3.14 runs handlers between the entry of a ``with`` and its block. A
handler that raises an exception therefore never leaves a lock taken. Without the GIL, critical sections keep threads
apart where several steps belong together.
"""

import threading
import time

from libc.stdint cimport uintptr_t

cimport cython

from rlx.errors import BusyError, ClosedError, describe


cdef extern from "owner.h" nogil:
    ctypedef struct rlx_owner:
        pass
    const uintptr_t RLX_ME
    const uintptr_t RLX_CLOSED
    uintptr_t rlx_holder(const rlx_owner* owner)
    bint rlx_take(rlx_owner* owner)
    void rlx_leave(rlx_owner* owner, uintptr_t to)


@cython.final
cdef class Owner:
    """Held from the first read of a call's arguments to the last copy of its results.

    ``owner.call(function, ...)`` never waits. Compiled code takes and releases it by itself, with one assignment
    each to the structure at ``address``.

    Args:
        what: What messages call the thing that is owned.
        hint: What a second thread should do instead.
    """

    cdef rlx_owner state
    cdef str _what
    cdef str _hint

    def __cinit__(self, str what, str hint):
        self._what, self._hint = what, hint

    @property
    def address(self):
        """Where compiled code finds the ``struct rlx_owner`` (owner.h)."""
        return <uintptr_t>&self.state

    @cython.binding(False)
    def call(self, function, /, *args, **kwargs):
        """What a function returns that holds the owner while it runs. It may close the owner.

        Raises:
            BusyError: A call is under way.
            ClosedError: The thing is closed.
        """
        if not rlx_take(&self.state):
            self.refuse()
        try:
            return function(*args, **kwargs)
        finally:
            if rlx_holder(&self.state) != RLX_CLOSED:
                rlx_leave(&self.state, 0)

    def close(self):
        """From now on every call is refused."""
        rlx_leave(&self.state, RLX_CLOSED)

    def refuse(self):
        """Raises the error that says why a call can't be made now.

        Raises:
            BusyError: A call is under way.
            ClosedError: The thing is closed.
        """
        cdef uintptr_t holder = rlx_holder(&self.state)
        if holder == RLX_CLOSED:
            raise ClosedError(describe(f"{self._what} is closed", hint="make a new one"))
        if holder == RLX_ME:
            raise _nested(f"{self._what} is already running")
        raise BusyError(
            describe(f"{self._what} is already running in another thread", hint=self._hint)
        )


cdef _nested(str what):
    """The error of a call that is made inside another one of the same thread, and would wait for it."""
    return BusyError(
        describe(
            f"{what}, further up in this thread",
            got="a call from a signal handler, a custom operation or __array__",
            hint="make the call when the one that is under way has returned",
        )
    )


@cython.final
cdef class Turns:
    """A lock that threads take in turn: ``turns.call(function, ...)`` waits for other threads.

    Args:
        what: What messages call the thing that is used in turn.
    """

    cdef object _lock
    cdef rlx_owner _state
    cdef str _what

    def __cinit__(self, str what):
        self._what, self._lock = what, threading.Lock()

    def call(self, function, /, *args, **kwargs):
        """What a function returns that holds the lock while it runs.

        Raises:
            BusyError: This is a call from inside such a function; it would wait for itself.
        """
        if rlx_holder(&self._state) == RLX_ME:
            raise _nested(f"{self._what} is already in use")
        self._lock.acquire()
        rlx_take(&self._state)
        try:
            return function(*args, **kwargs)
        finally:
            rlx_leave(&self._state, 0)
            self._lock.release()


# How long a thread sleeps before it looks again whether it may go on, in seconds.
cdef double _NAP = 0.0005


@cython.final
cdef class Gate:
    """Keeps runs of several steps and changes of what they read apart; runs go side by side."""

    cdef dict _running
    cdef Py_ssize_t _changes

    def __cinit__(self):
        self._running = {}

    def run(self, function, /, *args, **kwargs):
        """What a function returns that begins when nothing is being changed.

        A run inside a run of the same thread begins at once.
        """
        while not self._begun():
            time.sleep(_NAP)
        try:
            return function(*args, **kwargs)
        finally:
            self._ended()

    def change(self, function, /, *args, **kwargs):
        """What a function returns that begins when the runs under way have ended; no other begins before it returns.

        Raises:
            BusyError: A run is under way further up in this thread, and would never end.
        """
        self._announce()
        try:
            while self._runs():
                time.sleep(_NAP)
            return function(*args, **kwargs)
        finally:
            self._changed()

    cdef bint _begun(self) except -1:
        """Begins a run if it may begin now; whether it may."""
        cdef uintptr_t me = RLX_ME
        with cython.critical_section(self):
            if self._changes and me not in self._running:
                return False
            self._running[me] = self._running.get(me, 0) + 1
        return True

    cdef int _ended(self) except -1:
        cdef uintptr_t me = RLX_ME
        with cython.critical_section(self):
            count = self._running.pop(me) - 1
            if count:
                self._running[me] = count
        return 0

    cdef int _announce(self) except -1:
        """From now on no run begins."""
        cdef uintptr_t me = RLX_ME
        with cython.critical_section(self):
            if me in self._running:
                raise BusyError(
                    describe(
                        "weights can't change inside a run of a clone that shares them",
                        hint="set them when the run has returned",
                    )
                )
            self._changes += 1
        return 0

    cdef bint _runs(self) except -1:
        """Whether runs are under way."""
        with cython.critical_section(self):
            return len(self._running) > 0

    cdef int _changed(self) except -1:
        with cython.critical_section(self):
            self._changes -= 1
        return 0
