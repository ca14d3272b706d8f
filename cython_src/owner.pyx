"""Locks: one call at a time for each graph, and no change of weights during a run of several steps.

They are compiled, so that no signal handler runs between taking a lock and noting who holds it. A handler that
raises an exception therefore never leaves a lock taken. Without the GIL, critical sections keep threads apart where
several steps belong together.
"""

import threading
import time

from libc.stdint cimport uintptr_t

cimport cython

from rlx.errors import BusyError, InputError, describe


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

    ``with owner:`` never waits. Compiled code takes and releases it by itself, with one assignment each
    to the structure at ``address``.

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

    def __enter__(self):
        if not rlx_take(&self.state):
            self.refuse()

    def __exit__(self, kind, value, trace):
        if rlx_holder(&self.state) != RLX_CLOSED:
            rlx_leave(&self.state, 0)

    def close(self):
        """From now on every call is refused."""
        rlx_leave(&self.state, RLX_CLOSED)

    def refuse(self):
        """Raises the error that says why a call can't be made now.

        Raises:
            BusyError: A call is under way.
            InputError: The thing is closed.
        """
        cdef uintptr_t holder = rlx_holder(&self.state)
        if holder == RLX_CLOSED:
            raise InputError(describe(f"{self._what} is closed", hint="make a new one"))
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
    """A lock that threads take in turn: ``with turns:`` waits for other threads.

    A call from inside the block is refused, since it would wait for itself.

    Args:
        what: What messages call the thing that is used in turn.

    Raises:
        BusyError: On entry: this thread is inside the block already.
    """

    cdef object _lock
    cdef rlx_owner _state
    cdef str _what

    def __cinit__(self, str what):
        self._what, self._lock = what, threading.Lock()

    def __enter__(self):
        if rlx_holder(&self._state) == RLX_ME:
            raise _nested(f"{self._what} is already in use")
        self._lock.acquire()
        rlx_take(&self._state)

    def __exit__(self, kind, value, trace):
        rlx_leave(&self._state, 0)
        self._lock.release()


@cython.final
cdef class Gate:
    """Keeps runs of several steps and changes of what they read apart; runs go side by side.

    ``with gate.running():`` begins when nothing is being changed, ``with gate.changing():`` when the runs
    under way have ended. A run inside a run of the same thread begins at once.
    """

    cdef dict _running
    cdef Py_ssize_t _changes

    def __cinit__(self):
        self._running = {}

    def running(self):
        """Around a run."""
        return _Running(self)

    def changing(self):
        """Around a change.

        Raises:
            BusyError: On entry: a run is under way further up in this thread, and would never end.
        """
        return _Changing(self)


# How long a thread sleeps before it looks again whether it may go on, in seconds.
cdef double _NAP = 0.0005


@cython.final
cdef class _Running:
    cdef Gate _gate

    def __cinit__(self, Gate gate):
        self._gate = gate

    def __enter__(self):
        while not self._begun():
            time.sleep(_NAP)

    cdef bint _begun(self) except -1:
        """Begins the run if it may begin now; whether it may."""
        cdef uintptr_t me = RLX_ME
        with cython.critical_section(self._gate):
            running = self._gate._running
            if self._gate._changes and me not in running:
                return False
            running[me] = running.get(me, 0) + 1
        return True

    def __exit__(self, kind, value, trace):
        cdef uintptr_t me = RLX_ME
        with cython.critical_section(self._gate):
            running = self._gate._running
            count = running.pop(me) - 1
            if count:
                running[me] = count


@cython.final
cdef class _Changing:
    cdef Gate _gate

    def __cinit__(self, Gate gate):
        self._gate = gate

    def __enter__(self):
        self._announce()
        try:
            while self._runs():
                time.sleep(_NAP)
        except BaseException:
            self._add(-1)
            raise

    cdef int _announce(self) except -1:
        """From now on no run begins."""
        cdef uintptr_t me = RLX_ME
        with cython.critical_section(self._gate):
            if me in self._gate._running:
                raise BusyError(
                    describe(
                        "weights can't change inside a run of a clone that shares them",
                        hint="set them when the run has returned",
                    )
                )
            self._gate._changes += 1
        return 0

    cdef bint _runs(self) except -1:
        """Whether runs are under way."""
        with cython.critical_section(self._gate):
            return len(self._gate._running) > 0

    cdef int _add(self, Py_ssize_t count) except -1:
        with cython.critical_section(self._gate):
            self._gate._changes += count
        return 0

    def __exit__(self, kind, value, trace):
        self._add(-1)
