"""The lines of a record file (``.rlxreg``): JSON objects, told apart by their field ``kind``.

A file is a list of lines in any order: two files, one after the other, are a file of both recordings. Every line but
a text names the recording it belongs to, so nothing depends on where a line stands. docs/reference/record_files.md
describes the format for who reads it without this module.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

VERSION = 1
"""The version of the schema. A file of a later one is refused."""

COLD = "cold"
"""The suite whose cases count by their compile and first run alone."""

Text: TypeAlias = Annotated[str, Meta(max_length=400)]
Long: TypeAlias = Annotated[str, Meta(max_length=4000)]
Digest: TypeAlias = Annotated[str, Meta(pattern="^[0-9a-f]{8,64}$")]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Amount: TypeAlias = Annotated[float, Meta(ge=0)]
Nanosecond: TypeAlias = Annotated[int, Meta(ge=0, le=10**15)]
Nanoseconds: TypeAlias = Annotated[list[Nanosecond], Meta(max_length=100_000)]
Shape: TypeAlias = Annotated[list[Count], Meta(max_length=64)]
Names: TypeAlias = Annotated[list[Text], Meta(max_length=1000)]


class Load(Struct, frozen=True):
    """The load of the machine.

    Attributes:
        busy: Share of all cores that was in use over half a second, 0 to 1.
        clock_mhz: The CPU's clock; None where the system does not tell.
        gpu_clock_mhz: The GPU's clock; None where no tool tells.
    """

    busy: Annotated[float, Meta(ge=0, le=1)]
    clock_mhz: Amount | None = None
    gpu_clock_mhz: Amount | None = None


class Run(Struct, frozen=True, tag_field="kind", tag="run"):
    """The header of a recording: the machine, apart from its devices.

    Attributes:
        schema: Version of the schema.
        run: Name of the recording, made up at random.
        began: Date and time, UTC, ISO 8601.
        suites: The requested suites.
        processes: How many processes measured each case.
        quick: Whether fewer cases were measured, for a shorter time.
        rlx: Version of rlx.
        commit: The commit of rlx's checkout; empty for an installed wheel.
        build: Digest of rlx's sources.
        versions: Versions of NumPy, wgpu and Python.
        system: The operating system and its release.
        machine: The processor's architecture.
        cpu: The processor's name.
        isa: The instruction set that rlx's kernels use.
        cores: Logical cores that the process may use.
        threads: Threads of rlx's CPU kernels.
        memory: Bytes of main memory.
        load: How busy the machine was before.
        turns: A name shared by recordings whose processes took turns; None for a recording of its own.
    """

    schema: int
    run: Digest
    began: Text
    suites: Names
    processes: Annotated[int, Meta(ge=1, le=10_000)]
    quick: bool
    rlx: Text
    commit: Text
    build: Text
    versions: Annotated[dict[str, Text], Meta(max_length=100)]
    system: Text
    machine: Text
    cpu: Text
    isa: Text
    cores: Count
    threads: Count
    memory: Count
    load: Load
    turns: Digest | None = None


class DeviceLine(Struct, frozen=True, tag_field="kind", tag="device"):
    """A device of a recording.

    Attributes:
        run: The recording.
        device: Its name for rlx, such as "webgpu:1".
        adapter: The hardware's name.
        vendor_id: PCI vendor; None where the API does not tell.
        device_id: PCI device; None where the API does not tell.
        api: Vulkan, Metal, D3D12 or native.
        driver: Name and version of the driver.
        software: A GPU API run by the CPU.
        limits: The limits that kernels ask for.
        features: Optional features.
    """

    run: Digest
    device: Text
    adapter: Text
    vendor_id: Count | None
    device_id: Count | None
    api: Text
    driver: Text
    software: bool
    limits: Annotated[dict[str, Count], Meta(max_length=200)]
    features: Names


class Peaks(Struct, frozen=True, tag_field="kind", tag="peaks"):
    """The peaks of a device, measured by one process before its cases. See ``rlx regress peak``.

    Attributes:
        run: The recording.
        device: The device.
        process: Number of the process.
        copy_gb_s: Copies within the device's memory, bytes read and written.
        fma_gflop_s: Multiply-adds, each as two operations.
        dispatch_us: A graph of one small kernel, from call to result.
        upload_gb_s: From the host to the device; None where both share memory.
    """

    run: Digest
    device: Text
    process: Count
    copy_gb_s: Amount | None
    fma_gflop_s: Amount | None
    dispatch_us: Amount | None
    upload_gb_s: Amount | None


class Difference(Struct, frozen=True):
    """The difference of an output from the reference, which computes in float64.

    Attributes:
        max_abs: Largest difference of finite elements; None where one of them overflows.
        max_ulp: The same in units in the last place of the output's dtype; None for other dtypes than floats.
        rms: Root of the mean square of the differences; None where it overflows.
        relative: The figure that the tolerance bounds; None where it is infinite (NaN or infinity at another place).
        nan: Elements that are NaN.
        nan_expected: Elements that are NaN in the reference.
        inf: Infinite elements.
        inf_expected: Infinite elements of the reference.
    """

    max_abs: Amount | None
    max_ulp: Amount | None
    rms: Amount | None
    relative: Amount | None
    nan: Count
    nan_expected: Count
    inf: Count
    inf_expected: Count


class Output(Struct, frozen=True):
    """An output of a case.

    Attributes:
        name: Its name.
        dtype: Its dtype.
        shape: Its shape.
        bits: SHA-256 of its elements' bytes (C order, little endian), the first 32 hex digits.
        sample: Up to eight of its elements, evenly spaced, as Python prints them.
        difference: How far it is from the reference; None where there is none.
    """

    name: Text
    dtype: Text
    shape: Shape
    bits: Digest
    sample: Annotated[list[Text], Meta(max_length=8)]
    difference: Difference | None = None


class Kernel(Struct, frozen=True):
    """Calls of one kernel.

    Attributes:
        name: Its name.
        count: How often a run calls it.
        text: Digest of its WGSL; empty on other devices.
    """

    name: Text
    count: Count
    text: Annotated[str, Meta(pattern="^[0-9a-f]{0,64}$")] = ""


class CaseLine(Struct, frozen=True, tag_field="kind", tag="case"):
    """The measurements and facts of a case that are the same in each process.

    Attributes:
        run: The recording.
        device: The device.
        case: Digest of suite, op or model, shapes, dtypes, attributes and seed: the same in any recording.
        name: The case for people; the digest is what identifies it.
        suite: The suite.
        op: The operation, pipeline or model.
        shapes: Shapes of the inputs.
        dtypes: dtypes of the inputs.
        attributes: The attributes, as Python prints them.
        seed: Seed of the inputs.
        tolerance: Largest ``relative`` that the operation allows; None where nothing says.
        outputs: The outputs.
        schedule: Digest of the schedule.
        kernels: Calls in order of first use.
        bytes: Bytes that kernels read and write in a run; None where unknown.
        uploaded: Bytes that go to the device in a run.
        read_back: Bytes that come back.
        arena: Bytes of intermediate results.
        params: Bytes of weights.
        peak: Bytes of the device's memory in all.
        allocations: Blocks of Python's memory that each run leaves behind.
        on_the_host: The nodes that run on the host, and why.
        timed: Whether its times tell anything; false for small cases that are there for their numbers.
    """

    run: Digest
    device: Text
    case: Digest
    name: Text
    suite: Text
    op: Text
    shapes: Annotated[list[Shape], Meta(max_length=1000)]
    dtypes: Names
    attributes: Long
    seed: Count
    tolerance: Amount | None
    outputs: Annotated[list[Output], Meta(max_length=1000)]
    schedule: Digest
    kernels: Annotated[list[Kernel], Meta(max_length=10_000)]
    bytes: Count | None
    uploaded: Count
    read_back: Count
    arena: Count
    params: Count
    peak: Count
    allocations: Count
    on_the_host: Names = []
    timed: bool = True


class Times(Struct, frozen=True, tag_field="kind", tag="times"):
    """The times of a case in one process.

    Attributes:
        run: The recording.
        device: The device.
        case: The case.
        process: Number of the process.
        ns: Nanoseconds of each run, inputs and outputs included.
        gpu_ns: Nanoseconds of the kernels alone, by GPU timestamps; empty where there are none.
        compile_ns: Of the compile, without anything kept from before.
        first_ns: Of the first run.
        memory: The most memory that the process has used up to then, bytes.
        contention: Share of the cores that the process may use which others took meanwhile, 0 to 1; None where unknown.
        bits: Digests of the outputs, as in ``Output.bits``: a process may compute something else.
    """

    run: Digest
    device: Text
    case: Digest
    process: Count
    ns: Nanoseconds
    gpu_ns: Nanoseconds
    compile_ns: Count
    first_ns: Count
    memory: Count
    contention: Annotated[float, Meta(ge=0, le=1)] | None
    bits: Annotated[list[Digest], Meta(max_length=1000)]


class Failure(Struct, frozen=True, tag_field="kind", tag="failure"):
    """A case that a process could not measure.

    Attributes:
        run: The recording.
        device: The device.
        case: The case.
        name: The case for people.
        process: Number of the process.
        error: The error, without paths.
    """

    run: Digest
    device: Text
    case: Digest
    name: Text
    process: Count
    error: Long


class SourceText(Struct, frozen=True, tag_field="kind", tag="text"):
    """A schedule or a WGSL module that cases name by its digest.

    Attributes:
        digest: SHA-256 of the text, the first 32 hex digits.
        data: The text in UTF-8, compressed by zlib, in base64. At most ``MAX_TEXT`` bytes of text.
    """

    digest: Digest
    data: Annotated[str, Meta(max_length=1 << 20)]


class End(Struct, frozen=True, tag_field="kind", tag="end"):
    """The end of a recording. A recording without it was interrupted; its lines are valid.

    Attributes:
        run: The recording.
        ended: Date and time, UTC, ISO 8601.
        load: How busy the machine was after.
        floors: For each device the noise floor: the |log ratio| that 95 of 100 comparisons of two recordings of
            unchanged code stay within, by how the processes of this one differ (``floor.py``).
    """

    run: Digest
    ended: Text
    load: Load
    floors: Annotated[dict[str, Amount], Meta(max_length=100)]


MAX_TEXT = 4 << 20
"""Bytes of a schedule or a WGSL module, at most; longer ones are left out."""

Line: TypeAlias = Run | DeviceLine | Peaks | CaseLine | Times | Failure | SourceText | End
