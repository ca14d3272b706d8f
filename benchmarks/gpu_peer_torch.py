"""PyTorch on CUDA, eager and without TF32: the kernels of a run by CUDA's events."""

import functools

import numpy as np
from gpu_clock import copies_for
from gpu_peers import Absent
from work import relative_error
from work_streams import chain_of

# Runs of one figure take about so long; they are captured in a graph, so that no launch is waited for.
FIGURE_US, FEWEST, MOST, ROUNDS = 20e3, 3, 200, 7
# Of results: PyTorch's own error is far below, a wrong transcription of the workload far above.
AGREES = 2e-3


def start():
    """Its version; the settings are made."""
    import torch

    if not torch.cuda.is_available():
        raise Absent("PyTorch has no CUDA device here")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    # Sums of f16 products stay in f32, as everywhere else in this comparison.
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cudnn.benchmark = True
    return f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}"


def _matmul(torch, v, ta, tb):
    return (v["a"].mT if ta else v["a"]) @ (v["w"].mT if tb else v["w"])


def _epilogue(torch, v):
    return torch.nn.functional.gelu(torch.addmm(v["b"], v["a"], v["w"])) + v["r"]


def _int8(torch, v):
    return torch._int_mm(v["a"], v["w"]).float() * (0.01 * 0.02)


def _attention(torch, v, causal, group):
    attend = torch.nn.functional.scaled_dot_product_attention
    more = {"enable_gqa": True} if group > 1 else {}
    return attend(v["q"], v["k"], v["v"], is_causal=causal, **more)


def _blocks(torch, z):
    return torch.cat([z.real, z.imag], -1)


@functools.cache
def _window(n):
    import torch

    return torch.hann_window(n, periodic=True, device="cuda")


@functools.cache
def _bin_weights(n_fft):
    import torch

    weights = torch.full((n_fft // 2 + 1,), 2.0)
    weights[0] = weights[-1] = 1.0
    return weights.cuda()


def _windowed(torch, x, n_fft, hop):
    more = {"window": _window(n_fft), "center": False, "return_complex": True}
    return torch.stft(x, n_fft, hop, **more).mT


def _log_mel(torch, v, n_fft, hop, filters):
    power = _windowed(torch, v["x"], n_fft, hop).abs().square()
    return (power @ filters.mT).clamp(min=1e-10).log10()


def _welch(torch, v, segments, n_fft, k):
    frames = v["x"].unfold(-1, n_fft, n_fft // 2)
    spec = torch.fft.rfft((frames - frames.mean(-1, keepdim=True)) * _window(n_fft))
    power = (spec.real.square() + spec.imag.square()).mean(1)
    return torch.topk(power * _bin_weights(n_fft), k)


def _reduce(torch, v, kind, axis):
    return (torch.sum if kind == "sum" else torch.amax)(v["x"], axis)


def _norm(torch, v):
    return torch.nn.functional.layer_norm(v["x"], v["w"].shape, v["w"], v["b"], 1e-5)


def _rms(torch, v):
    return torch.nn.functional.rms_norm(v["x"], v["w"].shape, v["w"], 1e-6)


def _conv(torch, v, **settings):
    rank = v["x"].ndim - 2
    return getattr(torch.nn.functional, f"conv{rank}d")(v["x"], v["w"], v["b"], **settings)


def _max_pool(torch, v, kernel, stride, padding):
    return torch.nn.functional.max_pool2d(v["x"], kernel, stride, padding)


def _resize(torch, v, factor):
    more = {"scale_factor": factor, "mode": "bilinear", "align_corners": False}
    return torch.nn.functional.interpolate(v["x"], **more)


# The timed functions, by the workload's name for peers.
RUNS = {
    "matmul": _matmul,
    "epilogue": _epilogue,
    "int8": _int8,
    "attention": _attention,
    "fft": lambda torch, v: torch.fft.fft(v["x"]),
    "rfft": lambda torch, v: torch.fft.rfft(v["x"]),
    "stft": lambda torch, v, n_fft, hop: _windowed(torch, v["x"], n_fft, hop),
    "log_mel": _log_mel,
    "welch": _welch,
    "chain": lambda torch, v: chain_of(torch, v["x"], v["y"]),
    "softmax": lambda torch, v: torch.softmax(v["x"], -1),
    "layer_norm": _norm,
    "rms_norm": _rms,
    "reduce": _reduce,
    "cumsum": lambda torch, v, axis: torch.cumsum(v["x"], axis),
    "conv": _conv,
    "max_pool": _max_pool,
    "resize": _resize,
}
# From its result to the arrangement of rlx, where that differs; Welch's peaks are not compared.
ARRANGED = {"fft": _blocks, "rfft": _blocks, "stft": _blocks}
NOT_COMPARED = ("welch",)


def takes(row):
    """Returns whether PyTorch has the workload: only the small size has to be made to know."""
    return row.work(row.small[0]).peer[0] in RUNS


def _operands(torch, work):
    """Its operands on the device; complex where PyTorch has such a type."""
    stored = {name: torch.from_numpy(value).cuda() for name, value in work.values.items()}
    if work.peer[0] == "fft":
        n = stored["x"].shape[-1] // 2
        stored["x"] = torch.complex(
            stored["x"][:, :n].contiguous(), stored["x"][:, n:].contiguous()
        )
    return stored


def measure(work):
    """Microseconds of a run on the GPU, after its result was compared."""
    import torch

    try:
        return _measured(torch, work)
    finally:
        torch.cuda.empty_cache()


def _measured(torch, work):
    kind, settings = work.peer
    settings = {
        name: torch.from_numpy(value).cuda() if isinstance(value, np.ndarray) else value
        for name, value in settings.items()
    }
    with torch.inference_mode():
        nbytes = sum(value.nbytes for value in work.values.values())
        sets = [_operands(torch, work) for _ in range(copies_for(2 * nbytes))]

        def run(index=0):
            return RUNS[kind](torch, sets[index % len(sets)], **settings)

        result = run()
        if kind not in NOT_COMPARED:
            error = _error(torch, work, kind, result)
            if not error <= AGREES:
                raise ArithmeticError(f"its result differs by {error:.2g}")
        del result
        return _time(torch, run, len(sets))


def _error(torch, work, kind, result):
    arranged = ARRANGED[kind](torch, result) if kind in ARRANGED else result
    return relative_error(*work.reference([arranged.float().cpu().numpy()]))


def _time(torch, run, turns):
    """The median microseconds of a run, many in a row; as a CUDA graph where it can be captured."""
    for index in range(max(3, turns)):
        run(index)
    torch.cuda.synchronize()
    once = _elapsed(torch, lambda: [run(index) for index in range(turns)]) / turns
    runs = int(min(MOST, max(FEWEST, turns, FIGURE_US / max(once, 1.0))))

    def many():
        for index in range(runs):
            run(index)

    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            many()
        call = graph.replay
    except RuntimeError:
        torch.cuda.synchronize()
        call = many
    call()  # brings the clock up
    times = [_elapsed(torch, call) / runs for _ in range(ROUNDS)]
    return float(np.median(times))


def _elapsed(torch, call):
    """Microseconds between two events."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3
