"""Recordings made up for tests: as many cases, devices and processes as asked for, with noise and faults put in."""

import hashlib
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from rlx.regress.record_schema import (
    CaseLine,
    DeviceLine,
    Difference,
    End,
    Failure,
    Kernel,
    Load,
    Output,
    Peaks,
    Run,
    SourceText,
    Times,
)
from rlx.regress.recording import Recording, encoded, packed

OPS = ("add", "exp", "pow", "matmul", "softmax", "conv", "gather", "rfft", "sort", "cumsum")
LAVAPIPE = "llvmpipe (LLVM 19.1.7, 256 bits)"


def digest(*parts):
    """A digest of the kind that record files hold."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


@dataclass
class Made:
    """The settings of a made-up recording.

    Attributes:
        seed: Of the noise; another one is another recording.
        cases: How many cases.
        processes: How many processes.
        spread: Standard deviation of a process's logarithm.
        device: Its only device.
        adapter: The hardware.
        driver: The driver.
        gpu: Whether there are GPU timestamps.
        suite: The suite of all cases.
        isa: The instruction set.
        slower: Factors of the time by the number of the case.
        contention: What other programs took.
        peak: Factor of the machine's speed.
        noise: Draws of unit variance; by default a normal distribution.
        error: Factor of the errors by the number of the case.
        began: When.
        commit: Of rlx.
        turns: Shared by recordings that took turns.
        drift: What slows process after process down, whichever install it measures: logarithms.
    """

    seed: int = 0
    cases: int = 10
    processes: int = 5
    spread: float = 0.01
    device: str = "cpu"
    adapter: str = "a CPU"
    driver: str = "1.0"
    gpu: bool = False
    suite: str = "ops"
    isa: str = "avx2"
    slower: dict = field(default_factory=dict)
    contention: float | None = 0.0
    peak: float = 1.0
    noise: object = None
    error: dict = field(default_factory=dict)
    began: str = "2026-01-01T00:00:00Z"
    commit: str = "a" * 40
    turns: str | None = None
    drift: tuple = ()


def machine(result):
    """The header."""
    return Run(
        1,
        digest("run", result.seed, result.began, result.adapter),
        result.began,
        [result.suite],
        result.processes,
        False,
        "0.9",
        result.commit,
        digest("build", result.commit),
        {"numpy": "2.3", "wgpu": "0.32", "python": "3.12"},
        "Linux 6.1",
        "x86_64",
        "a CPU",
        result.isa,
        8,
        8,
        1 << 34,
        Load(0.01, 3000.0, None),
        result.turns,
    )


def case_line(result, run, index):
    """A case with one output."""
    op = OPS[index % len(OPS)]
    shape = [64, 8 + index]
    name = f"{op} {shape[0]}x{shape[1]} f32"
    ulp = 1.5 * result.error.get(index, 1.0)
    far = Difference(ulp * 6e-8, ulp, ulp * 2e-8, ulp * 4e-8, 0, 0, 0, 0)
    bits = digest("bits", index, result.adapter, result.error.get(index, 1.0))
    output = Output("y", "f32", shape, bits, ["0.5", "-1.25"], far)
    return CaseLine(
        run,
        result.device,
        digest(result.suite, index),
        name,
        result.suite,
        op,
        [shape],
        ["f32"],
        "{}",
        0,
        1e-5,
        [output],
        digest("schedule", index),
        [Kernel(op, 1, digest("wgsl", op) if result.gpu else "")],
        1 << 16,
        1 << 14,
        1 << 14,
        1 << 15,
        0,
        1 << 16,
        3,
    )


def recording(result=None, **changes):
    """A recording, made up as ``Made`` says."""
    result = replace(result, **changes) if result else Made(**changes)
    random = np.random.default_rng((result.seed, 7))
    noise = result.noise or (lambda random, size: random.standard_normal(size))
    header = machine(result)
    run = header.run
    output = Recording(header)
    api = "native" if result.device == "cpu" else "Vulkan"
    output.devices[result.device] = DeviceLine(
        run,
        result.device,
        result.adapter,
        65541,
        0,
        api,
        result.driver,
        result.adapter == LAVAPIPE,
        {"max_bindings": 8},
        [],
    )
    speed = result.peak * np.exp(0.005 * random.standard_normal((result.processes, 4)))
    output.peaks[result.device] = {
        index: Peaks(
            run, result.device, index, 20 * item[0], 300 * item[1], 8 / item[2], 10 * item[3]
        )
        for index, item in enumerate(speed.tolist())
    }
    draws = np.reshape(
        noise(random, result.cases * result.processes), (result.cases, result.processes)
    )
    for index in range(result.cases):
        line = case_line(result, run, index)
        measured = output.of(result.device, line.case)
        measured.case = line
        for position in range(result.processes):
            usual = 1e5 * (1 + index % 17) * result.slower.get(index, 1.0) / result.peak
            drift = result.drift[position] if result.drift else 0.0
            ns = round(usual * np.exp(result.spread * draws[index, position] + drift))
            runs = [ns, ns + 1, ns + 2]
            measured.times[position] = Times(
                run,
                result.device,
                line.case,
                position,
                runs,
                [run // 2 for run in runs] if result.gpu else [],
                20 * ns,
                3 * ns,
                1 << 27,
                result.contention,
                [line.outputs[0].bits],
            )
    output.end = End(run, result.began, Load(0.02, 3000.0, None), {})
    return output


def change_case(result, index, **changes):
    """Changes fields of a case's line; the recording's only device has it."""
    measured = list(result.measured.values())[index]
    measured.case = msgspec.structs.replace(measured.case, **changes)
    return measured


def change_output(result, index, *, bits=None, sample=None, **difference):
    """Changes the output of a case, in its line and in what its processes computed."""
    measured = list(result.measured.values())[index]
    output = measured.case.outputs[0]
    output = msgspec.structs.replace(
        output,
        bits=bits or output.bits,
        sample=sample or output.sample,
        difference=msgspec.structs.replace(output.difference, **difference),
    )
    measured.case = msgspec.structs.replace(measured.case, outputs=[output])
    for key, times in measured.times.items():
        measured.times[key] = msgspec.structs.replace(times, bits=[output.bits])
    return measured


def fail(result, index, error="DeviceLostError: the device was lost", processes=None):
    """Makes a case fail in some processes, or in all."""
    measured = list(result.measured.values())[index]
    (device,) = result.devices
    for position in range(result.run.processes) if processes is None else processes:
        measured.times.pop(position, None)
        measured.failures[position] = Failure(
            result.run.run, device, measured.case.case, measured.case.name, position, error
        )
    return measured


def add_text(result, text):
    """Puts a schedule or a WGSL module into a recording; gives its digest."""
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    result.texts[name] = packed(text)
    return name


def write(result, path):
    """Writes a recording as ``rlx regress record`` does."""
    lines = [result.run, *result.devices.values()]
    lines += [peaks for by_process in result.peaks.values() for peaks in by_process.values()]
    for measured in result.measured.values():
        lines += [measured.case] if measured.case else []
        lines += [*measured.times.values(), *measured.failures.values()]
    lines += [SourceText(name, data) for name, data in result.texts.items()]
    lines += [result.end] if result.end else []
    path.write_bytes(b"".join(map(encoded, lines)))
    return path
