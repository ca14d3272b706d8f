"""Live voice activity: Silero VAD chunk by chunk over a WAV file or the microphone, its state kept on the device.

usage: python examples/10_voice_activity.py [speech.wav | --microphone SECONDS] [--model silero_vad_openvino_16k.onnx]
                                            [--device auto]

The model is in the package silero-vad (MIT): ``pip download --no-deps silero-vad==6.2.3``, unzip, or name its file with
--model. A chunk is 512 samples at 16 kHz, 32 ms. Recording needs the package sounddevice; without a file a synthetic
voice is listened to. Without a model the example says so and ends.
"""

import argparse
import importlib.util
import time
import wave
from pathlib import Path

import numpy as np

import rlx

RATE, CHUNK, CONTEXT = 16000, 512, 64
MODEL = "silero_vad/data/silero_vad_openvino_16k.onnx"


class VoiceActivity:
    """The probability of speech in each chunk of a stream.

    The recurrent state never leaves the device: after each run its handle takes the second output.

    Args:
        model: The ONNX file: inputs [1, 576] and [2, 1, 128], outputs [1, 1] and the next state.
        device: A device, or "auto".
    """

    def __init__(self, model: str | Path, device: str = "auto") -> None:
        graph = rlx.onnx.load(model)
        self._compiled = rlx.compile(graph, device)
        self._compiled.bind_gpu_handle("state", np.zeros((2, 1, 128), np.float32))
        self._compiled.set_gpu_handle_feed("state", 1)
        # The last samples of a chunk stand before the next one.
        self._window = np.zeros((1, CONTEXT + CHUNK), np.float32)
        self.device = self._compiled.device

    def __call__(self, chunk: np.ndarray) -> float:
        """The probability that this chunk, ``[512]`` samples in -1 to 1, holds speech."""
        self._window[0, :CONTEXT] = self._window[0, -CONTEXT:]
        self._window[0, CONTEXT:] = chunk
        (probability,) = self._compiled.run_read_outputs({"input": self._window}, [0])
        return float(probability[0, 0])

    def reset(self) -> None:
        """Forgets what was heard."""
        self._compiled.bind_gpu_handle("state", np.zeros((2, 1, 128), np.float32))
        self._window[:] = 0

    def close(self) -> None:
        """Frees the device's memory."""
        self._compiled.close()


def segments(probabilities, threshold=0.5, silence=0.1, least=0.25):
    """Stretches of speech in seconds: from above the threshold to a silence that is long enough.

    Args:
        probabilities: One for each chunk.
        threshold: Above it speech begins; it ends 0.15 below.
        silence: Seconds without speech that end a stretch.
        least: Seconds of a stretch that counts.
    """
    step, result, begin, last = CHUNK / RATE, [], None, 0.0
    for index, probability in enumerate([*probabilities, 0.0, *[0.0] * int(silence / step + 1)]):
        now = index * step
        if probability >= threshold and begin is None:
            begin = now
        if begin is not None and probability >= threshold - 0.15:
            last = now + step
        if begin is not None and now + step - last > silence:
            if last - begin >= least:
                result.append((begin, last))
            begin = None
    return result


def chunks_of(samples):
    """A signal in chunks; the last one is filled up with silence."""
    padded = np.pad(samples.astype(np.float32), (0, -len(samples) % CHUNK))
    return padded.reshape(-1, CHUNK)


def from_wav(path):
    """Samples of a 16-bit mono or stereo WAV file at 16 kHz."""
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getsampwidth()) != (RATE, 2):
            raise SystemExit(f"{path}: a WAV file of 16 bits at {RATE} Hz is needed")
        raw = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return raw.reshape(-1, file.getnchannels()).mean(1) / 32768.0


def from_microphone(seconds):
    """Yields audio from the microphone."""
    import sounddevice

    recorded = sounddevice.rec(int(seconds * RATE), RATE, 1, dtype="float32", blocking=True)
    return recorded[:, 0]


def synthetic():
    """Two seconds of silence, two of a buzzing voice with formants, two of silence."""
    t = np.arange(2 * RATE) / RATE
    pitch = 120 + 20 * np.sin(2 * np.pi * 2.5 * t)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    formants = ((500, 1.0), (1500, 0.6), (2500, 0.3))
    voice = sum(
        np.sin(k * phase) * sum(a * np.exp(-(((k * 120 - f) / 200) ** 2)) for f, a in formants)
        for k in range(1, 25)
    )
    voice *= 0.3 * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * t))
    quiet = np.zeros(2 * RATE)
    return np.concatenate([quiet, voice, quiet])


def find_model(value):
    """The model's file, or None where there is none."""
    if value:
        return Path(value)
    places = [Path(Path(MODEL).name)]
    package = importlib.util.find_spec("silero_vad")
    if package is not None and package.origin is not None:
        places.append(Path(package.origin).parent / "data" / Path(MODEL).name)
    return next((place for place in places if place.exists()), None)


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wav", nargs="?")
    parser.add_argument("--microphone", type=float, metavar="SECONDS")
    parser.add_argument("--model")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    model = find_model(arguments.model)
    if model is None:
        print("no model: install the package silero-vad, or name the file with --model")
        return
    if arguments.microphone:
        samples = from_microphone(arguments.microphone)
    else:
        samples = from_wav(arguments.wav) if arguments.wav else synthetic()
    vad = VoiceActivity(model, arguments.device)
    probabilities, times = [], []
    for chunk in chunks_of(samples):
        began = time.perf_counter()
        probabilities.append(vad(chunk))
        times.append(time.perf_counter() - began)
    for begin, end in segments(probabilities):
        print(f"speech from {begin:6.2f} to {end:6.2f} s")
    p50, p99 = np.percentile(times, (50, 99)) * 1e6
    print(
        f"{len(times)} chunks on {vad.device}: p50 {p50:.0f} us, p99 {p99:.0f} us of {CHUNK / RATE * 1e3:.0f} ms"
    )
    vad.close()


if __name__ == "__main__":
    main()
