"""Sources of sound: a microphone, a WAV file, or a signal made here. Each fills a queue from its own thread."""

from __future__ import annotations

import math
import queue
import threading
import time
import traceback
import wave
from pathlib import Path

import numpy as np

RATE, CHUNK = 16000, 512
WAITING = 16  # chunks in the queue, half a second: what comes after that is dropped and counted
TONE_HZ, PERIOD_S, QUIET_S = 3000.0, 1.5, 0.7
SAMPLE_TYPES = {1: ("u1", 128.0, 128.0), 2: ("<i2", 0.0, 32768.0), 4: ("<i4", 0.0, 2147483648.0)}


class SourceError(Exception):
    """A source can't be opened; the text says why."""


def is_voice(seconds: float) -> bool:
    """Returns whether the generated signal has a voice at this time."""
    return seconds % PERIOD_S >= QUIET_S


def generated(start: int) -> np.ndarray:
    """Samples from ``start`` on: noise, a steady faint tone of 3 kHz, and now and then a buzzing voice."""
    t = (start + np.arange(CHUNK)) / RATE
    noise = np.random.default_rng(start).standard_normal(CHUNK)
    place = t % PERIOD_S - QUIET_S
    # The phase of a pitch of 140 Hz that swings by 25 Hz, three times a second.
    phase = 2 * np.pi * 140 * t - 25 / 3 * np.cos(2 * np.pi * 3 * t)
    formants = ((550, 1.0), (1400, 0.5), (2400, 0.3))
    voice = sum(
        np.sin(k * phase) * sum(a * math.exp(-(((k * 140 - f) / 220) ** 2)) for f, a in formants)
        for k in range(1, 20)
    )
    shape = np.clip(np.minimum(place, PERIOD_S - QUIET_S - place) / 0.03, 0, 1)
    sound = 0.002 * noise + 0.01 * np.sin(2 * np.pi * TONE_HZ * t) + 0.15 * shape * voice
    return sound.astype(np.float32)


def read_wav(path: Path) -> np.ndarray:
    """The samples of a file, its channels averaged, at ``RATE``, float32 in -1 to 1.

    Raises:
        SourceError: The file can't be read, or its samples have another format.
    """
    try:
        with wave.open(str(path)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            raw = file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise SourceError(f"{path}: {error}") from error
    if width not in SAMPLE_TYPES:
        raise SourceError(f"{path}: samples of 8, 16 or 32 bits are needed, not {8 * width}")
    kind, zero, scale = SAMPLE_TYPES[width]
    sound = (np.frombuffer(raw, kind).reshape(-1, channels).mean(1) - zero) / scale
    if rate != RATE:
        from rlx import signal  # only in the thread that reads: the window doesn't wait for it

        common = math.gcd(RATE, rate)
        sound = signal.resample_poly(sound.astype(np.float32), RATE // common, rate // common)
    return np.asarray(sound, np.float32)


def microphone_problem() -> str:
    """Why there is no microphone, or ""."""
    try:
        import sounddevice
    except (ImportError, OSError) as error:  # the package, or the PortAudio library that it needs
        return str(error)
    try:
        sounddevice.check_input_settings(samplerate=RATE, channels=1)
    except (sounddevice.PortAudioError, ValueError) as error:
        return str(error)
    return ""


class AudioSource:
    """Puts chunks ``(first sample, samples)`` into ``chunks`` until it is closed.

    Args:
        kind: "generated", "microphone", or the path of a WAV file, which repeats.
        failed: Called with a sentence, in the source's thread, if it can't be opened.
    """

    def __init__(self, kind: str, failed) -> None:
        self.kind, self.dropped = kind, 0
        self.chunks: queue.Queue[tuple[int, np.ndarray]] = queue.Queue(WAITING)
        self._failed, self._end = failed, threading.Event()
        self._thread = threading.Thread(target=self._work, name="audio")

    def start(self) -> None:
        """Starts the thread: from now on chunks come, or ``failed`` is called."""
        self._thread.start()

    def flush(self) -> None:
        """Forgets what waits and was dropped, such as the sound from before there was a device."""
        while not self.chunks.empty():
            self.chunks.get_nowait()
        self.dropped = 0

    def close(self) -> None:
        """Ends the thread; returns within a tenth of a second."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        try:
            if self.kind == "microphone":
                self._listen()
            elif self.kind == "generated":
                self._play(generated)
            else:
                sound = read_wav(Path(self.kind))
                padded = np.pad(sound, (0, -len(sound) % CHUNK or (0 if len(sound) else CHUNK)))
                self._play(lambda start: padded[start % len(padded) :][:CHUNK])
        except SourceError as error:
            self._failed(str(error))
        except Exception as error:
            # A fault that nobody expected is shown, or the window would wait for sound for good.
            traceback.print_exc()
            self._failed(f"{type(error).__name__}: {error}")

    def _play(self, chunk_at) -> None:
        """Chunks at the pace of real time."""
        began, start = time.monotonic(), 0
        while not self._end.wait(max(0.0, began + (start + CHUNK) / RATE - time.monotonic())):
            self._put(start, chunk_at(start))
            start += CHUNK

    def _listen(self) -> None:
        if problem := microphone_problem():
            raise SourceError(f"there is no microphone: {problem}")
        import sounddevice

        start = 0

        def heard(samples, *_) -> None:
            nonlocal start
            self._put(start, samples[:, 0].copy())
            start += CHUNK

        try:
            with sounddevice.InputStream(RATE, CHUNK, channels=1, dtype="float32", callback=heard):
                self._end.wait()
        except sounddevice.PortAudioError as error:  # another program has it, or it was unplugged
            raise SourceError(f"the microphone can't be used: {error}") from error

    def _put(self, start: int, samples: np.ndarray) -> None:
        try:
            self.chunks.put_nowait((start, samples))
        except queue.Full:
            self.dropped += 1
