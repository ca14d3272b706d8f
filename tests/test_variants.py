"""Variants of GPU kernels: how one is chosen, forced, measured and kept."""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from calibrations import forget_variants
from samples import looped, without_units

import rlx
from rlx.cli.main import main
from rlx.cost import store, tuned
from rlx.device.names import info_of
from rlx.ir.variants import Choices, Family, Variant, nearest, point
from rlx.ops.block_formats import decode_blocks
from rlx.ops.products.block_encoders import quantize_blocks, quantize_groups
from rlx.ops.products.integer_tiles import INTEGER
from rlx.ops.products.tiles import (
    DEQUANT,
    EXPERTS,
    MATMUL,
    BlockMatmulProblem,
    MatmulProblem,
    packed_strips,
    partitions,
    strips,
)
from rlx.ops.rows.tiles import ROWS
from rlx.tune import tune_probes
from rlx.tune import tuner as tuning
from rlx.tune.tune_probes import TuneProbe, probes

BYTES = {"i8": np.int8, "u8": np.uint8}
LEAST = {"max-compute-workgroup-storage-size": 16384, "max-compute-invocations-per-workgroup": 256}


def chooser(limits=LEAST, forced=(), tuned=None):
    return SimpleNamespace(limits=limits, choices=Choices(tuple(forced), tuned or {}))


def product(m=64, k=96, n=80):
    g = rlx.Graph("product")
    g.set_outputs([g.input("a", (m, k)) @ g.input("b", (k, n))])
    return g


def test_the_rule_goes_by_size():
    def name(m, n, k=512, batch=1, **more):
        return MATMUL.choose(MatmulProblem(m, (n,), k, batch, **more), chooser()).name

    assert name(4096, 4096, simple=True, whole=True) == "wide"
    assert name(4096, 4096) == "large"
    assert name(1024, 1024, simple=True, whole=True) == "medium"
    assert name(1000, 1000) == "small"
    assert name(64, 64) == "small"
    assert name(64, 4096, k=4096) == "large"
    assert name(4096, 4096, gated=True) == "paired"


def test_what_does_not_fit_is_not_taken():
    tight = {
        "max-compute-workgroup-storage-size": 8192,
        "max-compute-invocations-per-workgroup": 256,
    }
    big = MatmulProblem(4096, (4096,), 512, 1, simple=True, whole=True)
    assert MATMUL.choose(big, chooser(tight)).storage <= 8192
    for _, variant in enumerate(MATMUL.legal(big, LEAST)):
        assert variant.fits(LEAST)


def test_forced_then_measured_then_the_rule():
    position = MatmulProblem(4096, (4096,), 512, 1, simple=True, whole=True)
    table = {"matmul": ((point(position), "small"),)}
    assert MATMUL.choose(position, chooser()).name == "wide"
    assert MATMUL.choose(position, chooser(tuned=table)).name == "small"
    assert (
        MATMUL.choose(position, chooser(forced=[("matmul", "plain")], tuned=table)).name == "plain"
    )
    # A variant that is forced but impossible is passed over.
    gated = position._replace(gated=True)
    assert MATMUL.choose(gated, chooser(forced=[("matmul", "wide")])).name == "paired"


def test_an_unknown_variant_is_refused(webgpu, monkeypatch):
    monkeypatch.setenv("RLX_VARIANT", "matmul=larg")
    with pytest.raises(rlx.CompileError, match="large"):
        rlx.compile(product(), webgpu)


def test_the_nearest_measured_problem_counts():
    rows = (((4.0, 4.0), "a"), ((6.0, 6.0), "b"))
    assert nearest(rows, (4.4, 4.0)) == "a"
    assert nearest(rows, (5.6, 6.4)) == "b"
    assert nearest(rows, (9.0, 6.0)) is None
    assert nearest((), (1.0,)) is None
    assert nearest(rows, (4.0, 4.0, 4.0)) is None


def test_points_of_problems():
    assert point((7, True, (1, 2), {"limit": 3})) == (3.0, 8.0, 2.0, 1.585)


@looped("m", [1, 2, 5, 16])
@looped("k", [0, 1, 3, 100, 4096, 16384])
@looped("n", [1, 64, 4096])
def test_shares_cover_the_sums(m, k, n):
    cut = strips(MatmulProblem(m, (n,), k, 1))
    assert cut.splits * cut.partition_k >= k
    assert (cut.splits - 1) * cut.partition_k < max(1, k)
    assert 4 * m * cut.stage <= 8192
    for variant in MATMUL.variants:
        count, each = partitions(MatmulProblem(m + 30, (n,), k, 1), variant)
        assert count * each >= k
        assert each % variant.params["bk"] == 0


@pytest.mark.webgpu
@pytest.mark.by_program
@looped("variant", [v.name for v in MATMUL.variants])
@looped(
    ("m", "k", "n", "batch"),
    [(65, 130, 67, 1), (128, 64, 128, 2), (40, 2048, 64, 1), (200, 33, 132, 1), (17, 3, 4, 3)],
)
def test_every_product_variant(variant, m, k, n, batch, webgpu, monkeypatch, rng):
    monkeypatch.setenv("RLX_VARIANT", f"matmul={variant}")
    a = rng.normal(size=(batch, m, k)).astype(np.float32)
    b = rng.normal(size=(batch, k, n)).astype(np.float32)
    bias, g = rng.normal(size=n).astype(np.float32), rlx.Graph()
    left, right = g.input("a", a.shape), g.input("b", b.shape)
    transposed, c = g.input("t", (batch, n, k)), g.input("c", (n,))
    across = g.transpose(g.input("s", (batch, k, m)), (0, 2, 1))
    products = [left @ right + c, left @ g.transpose(transposed, (0, 2, 1)), across @ right]
    g.set_outputs([g.gelu(products[0]), *products[1:]])
    feeds = {"a": a, "b": b, "t": b.swapaxes(1, 2).copy(), "c": bias, "s": a.swapaxes(1, 2).copy()}
    with rlx.compile(g, webgpu) as compiled, rlx.compile(g, "reference") as exact:
        for got, expected in zip(compiled.run(feeds), exact.run(feeds), strict=True):
            assert np.linalg.norm(got - expected) <= 3e-6 * np.linalg.norm(expected)


# Left to ``script/test --all``: each takes ten seconds on a software GPU that has compiled nothing yet. The others
# have blocks with a minimum and odd bits (Q5_1), blocks of blocks (Q6_K) and groups along a row (int4).
SLOW_SCHEMES = [
    pytest.param(scheme, marks=pytest.mark.slow)
    for scheme in ("Q4_0", "Q4_1", "Q5_0", "Q8_0", "int8")
]


@pytest.mark.webgpu
@pytest.mark.by_program
@looped("variant", [v.name for v in without_units(DEQUANT)])
@looped("scheme", ["Q5_1", "Q6_K", "int4", *SLOW_SCHEMES])
@looped(("m", "n", "k"), [(70, 130, 256), (16, 67, 2304), (3, 33, 512)])
def test_every_variant_of_weights_in_blocks(scheme, variant, m, n, k, webgpu, monkeypatch):
    rng = np.random.default_rng([m, n])
    monkeypatch.setenv("RLX_VARIANT", f"dequant={variant}")
    w = rng.normal(size=(n, k)).astype(np.float32)
    groups = scheme in ("int4", "int8")
    parts = quantize_groups(w, scheme, 64) if groups else (quantize_blocks(w, scheme),)
    x, g = rng.normal(size=(m, k)).astype(np.float32), rlx.Graph()
    stored = [g.constant(part) for part in parts]
    g.set_outputs(g.dequant_matmul(g.input("x", x.shape), stored[0], scheme, *stored[1:]))
    exact = x.astype(np.float64) @ decode_blocks(parts[0], scheme, *parts[1:]).T
    with rlx.compile(g, webgpu) as compiled:
        kernel = "dequant_gemv" if variant == "few" and m <= 16 else "dequant_matmul"
        # Default limits have no room for the large tiles.
        assert f" {kernel}(" in compiled.as_text("schedule") or variant == "large"
        got = compiled.run({"x": x})[0]
    assert np.linalg.norm(got - exact) <= 3e-6 * np.linalg.norm(exact)


@pytest.mark.webgpu
@pytest.mark.by_program
@looped("variant", [v.name for v in without_units(INTEGER)])
@looped("signs", [("i8", "i8"), ("u8", "i8"), ("i8", "u8"), ("u8", "u8")])
@looped(
    ("m", "k", "n", "batch"), [(70, 68, 132, 1), (128, 64, 128, 2), (5, 1100, 40, 3), (9, 30, 7, 1)]
)
def test_every_variant_of_products_of_bytes(signs, variant, m, k, n, batch, webgpu, monkeypatch):
    rng = np.random.default_rng([m, k])
    monkeypatch.setenv("RLX_VARIANT", f"matmul_integer={variant}")
    shapes = {"a": (batch, m, k), "b": (batch, k, n)}
    # The extremes: sums of 1,100 products of 255 by 255 are far from exact in f32.
    feeds = {
        name: (rng.integers(0, 2, shape) * 255 - 128 * (sign == "i8")).astype(BYTES[sign])
        for (name, shape), sign in zip(shapes.items(), signs, strict=True)
    }
    g = rlx.Graph()
    sides = [g.input(name, shapes[name], sign) for name, sign in zip(shapes, signs, strict=True)]
    g.set_outputs([g.matmul_integer(*sides)])
    with rlx.compile(g, webgpu) as compiled:
        got = compiled.run(feeds)[0]
    exact = feeds["a"].astype(np.int32) @ feeds["b"].astype(np.int32)
    np.testing.assert_array_equal(got, exact)


@pytest.mark.webgpu
@pytest.mark.by_program
@looped("variant", [v.name for v in without_units(EXPERTS)])
@looped(
    ("m", "k", "n", "experts"),
    [(200, 40, 132, 3), (7, 33, 30, 20), (1, 4096, 64, 2), (300, 16, 128, 1), (70, 5, 9, 70)],
)
def test_every_variant_of_rows_by_expert(variant, m, k, n, experts, webgpu, monkeypatch, rng):
    monkeypatch.setenv("RLX_VARIANT", f"grouped_matmul={variant}")
    x = rng.normal(size=(m, k)).astype(np.float32)
    w = rng.normal(size=(experts, k, n)).astype(np.float32)
    # Most rows have one expert, some experts have none; what is out of range is taken for the nearest.
    idx, g = np.minimum(rng.integers(-1, 3 * experts, m), experts).astype(np.int32), rlx.Graph()
    operands = g.input("x", x.shape), g.input("w", w.shape), g.input("idx", (m,), "i32")
    g.set_outputs([g.grouped_matmul(*operands)])
    exact = np.einsum("mk,mkn->mn", x.astype(np.float64), w[np.clip(idx, 0, experts - 1)])
    with rlx.compile(g, webgpu) as compiled:
        got = compiled.run({"x": x, "w": w, "idx": idx})[0]
        kernel = {"rows": "grouped_gemv(", "plain": "grouped_matmul("}.get(
            variant, "grouped_tiles("
        )
        assert kernel in compiled.as_text("schedule")
        again = compiled.run({"x": x, "w": w, "idx": idx})[0]
    assert np.linalg.norm(got - exact) <= 3e-6 * np.linalg.norm(exact)
    # In which order rows of an expert are listed differs from run to run, and changes no sum.
    np.testing.assert_array_equal(got, again)


@pytest.mark.webgpu
def test_a_nan_stays_in_the_row_of_its_expert(webgpu, rng):
    x, w = rng.normal(size=(90, 32)).astype(np.float32), np.ones((3, 32, 68), np.float32)
    x[7, 3], w[1, 2, 5] = np.nan, np.inf
    idx, g = np.arange(90, dtype=np.int32) % 3, rlx.Graph()
    operands = g.input("x", x.shape), g.input("w", w.shape), g.input("idx", (90,), "i32")
    g.set_outputs([g.grouped_matmul(*operands)])
    with rlx.compile(g, webgpu) as compiled:
        got = compiled.run({"x": x, "w": w, "idx": idx})[0]
    assert np.isnan(got[7]).all()
    wrong = ~np.isfinite(np.delete(got, 7, 0))
    assert np.flatnonzero(wrong.any(0)).tolist() == [5]
    assert (np.flatnonzero(wrong.any(1)) + (np.flatnonzero(wrong.any(1)) >= 7)).tolist() == [
        row for row in range(90) if row % 3 == 1 and row != 7
    ]


def test_zero_points_of_zero_cost_nothing(webgpu):
    g = rlx.Graph()
    a, b = g.input("a", (5, 8), "i8"), g.input("b", (8, 12), "u8")
    zero = g.constant(np.zeros(5, np.int8))
    g.set_outputs([g.qmatmul(a, b, 0.5, 0.25, a_zero_point=zero)])
    assert {node.op for node in g.nodes} <= {
        "input",
        "constant",
        "matmul_integer",
        "cast",
        "mul",
        "unsqueeze",
    }
    assert rlx.compile(g, webgpu).as_text("schedule").startswith("schedule: 1 calls")


@looped("m", range(1, 17))
@looped("k", [16, 32, 256, 4096])
def test_few_rows_fit_the_least_memory(m, k):
    piece = 16 if k % 32 else 32
    for n in (100, 4096, 16384):
        cut = packed_strips(BlockMatmulProblem(m, n, k), piece)
        assert m * piece // 4 * cut.lanes * 16 <= 16384
        assert cut.lanes & (cut.lanes - 1) == 0
        assert cut.lanes >= 8
        assert cut.across * 4 * 128 // cut.lanes >= n
        assert cut.partition_pieces % cut.lanes == 0
        assert (
            (cut.splits - 1) * cut.partition_pieces
            < k // piece
            <= cut.splits * cut.partition_pieces
        )


@pytest.mark.webgpu
@pytest.mark.by_program
@looped(("m", "n", "k"), [(16, 70, 2080), (3, 36, 4096), (1, 8, 4096)])
@looped("scheme", ["Q4_0", "Q8_0", "Q6_K"])
def test_few_rows_by_split_sums(m, n, k, scheme, webgpu, rng):
    k = k // 256 * 256 if scheme == "Q6_K" else k
    assert packed_strips(BlockMatmulProblem(m, n, k), 32).splits > 1
    x = rng.normal(size=(m, k)).astype(np.float32)
    packed = quantize_blocks(rng.normal(size=(n, k)), scheme)
    g = rlx.Graph()
    g.set_outputs([g.dequant_matmul(g.input("x", (m, k)), g.constant(packed), scheme)])
    with rlx.compile(g, webgpu) as compiled:
        (result,) = compiled.run({"x": x})
        assert "split_sum" in compiled.as_text("schedule")
    exact = x.astype(np.float64) @ decode_blocks(packed, scheme).astype(np.float64).T
    np.testing.assert_allclose(result, exact, 1e-4, 1e-4)


@pytest.mark.webgpu
@pytest.mark.by_program
@looped("variant", ["wide", "deep", "tiles"])
@looped("kind", ["none", "causal", "sliding:20"])
@looped("shape", [(130, 130, 64, 64), (70, 200, 40, 17), (33, 20, 6, 128)])
def test_every_attention_variant(variant, kind, shape, webgpu, monkeypatch, rng):
    monkeypatch.setenv("RLX_VARIANT", f"attention={variant}")
    sq, sk, d, dv = shape
    g = rlx.Graph()
    sizes = {"q": (1, 4, sq, d), "k": (1, 2, sk, d), "v": (1, 2, sk, dv)}
    g.set_outputs([g.attention(*(g.input(n, s) for n, s in sizes.items()), kind=kind)])
    feeds = {n: rng.normal(size=s).astype(np.float32) for n, s in sizes.items()}
    with rlx.compile(g, webgpu) as compiled, rlx.compile(g, "reference") as exact:
        np.testing.assert_allclose(compiled.run(feeds)[0], exact.run(feeds)[0], 1e-4, 2e-5)


# --- the tuner -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RLX_CALIBRATION", str(tmp_path))
    store.forget()
    forget_variants()
    yield tmp_path
    store.forget()
    forget_variants()


def small(limit=2):
    return [
        TuneProbe(f"product {m}", 4 * m * m, partial(product, m, m, m)) for m in (32, 64)[:limit]
    ]


def test_the_tuner_keeps_the_fastest(webgpu, folder):
    said = []
    result = tuning.tune(webgpu, lambda part, what: said.append((part, what)), small())
    assert {item.problem for item in result} == {"product 32", "product 64"}
    for item in result:
        assert item.family == "matmul"
        assert set(item.us) == {v.name for v in without_units(MATMUL)}
        assert all(us > 0 for us in item.us.values())
        assert item.simplest == "plain"
        fastest = min(item.us, key=item.us.get)
        assert item.best == fastest or (
            item.best == item.default and item.us[fastest] > 0.97 * item.us[item.best]
        )
    assert said[0] == (0.0, "product 32")
    assert said[-1] == (1.0, "done")
    (file,) = folder.glob("*.variants.json")
    forget_variants()
    retained = tuned.stored_variants(webgpu)
    assert retained == {"matmul": tuple(sorted((item.at, item.best) for item in result))}
    # Later compiles take it, and compiled graphs of before are others.
    name = next(v.name for v in without_units(MATMUL) if v.name != result[0].default)
    tuned.store_variants(webgpu, {"matmul": ((result[0].at, name),)})
    text = rlx.compile(product(32, 32, 32), webgpu).as_text("schedule")
    tile = next(v.params for v in MATMUL.variants if v.name == name)
    assert (
        f"bm={tile['bm']} bn={tile['bn']} bk={tile['bk']} tm={tile['tm']} tn={tile['tn']}" in text
    )
    assert file.stat().st_size > 0


@pytest.mark.parametrize(
    ("family", "build"),
    [
        (DEQUANT, partial(tune_probes._packed, 12, 64, 64, "Q4_0")),
        (INTEGER, partial(tune_probes._bytes, 12, 64, 64)),
        (EXPERTS, partial(tune_probes._experts, 40, 32, 64, 3)),
    ],
)
def test_the_tuner_times_narrow_products(family, build, webgpu, folder):
    (result,) = tuning.tune(webgpu, which=[TuneProbe("narrow", 4096, build)])
    assert result.family == family.name
    assert {v.name for v in family.variants if v.fits(LEAST)} <= set(result.us)
    assert result.simplest == "plain"


@pytest.mark.parametrize("damage", ["cut", "changed", "other", "not json", "huge"])
def test_a_damaged_file_counts_as_none(damage, webgpu, folder):
    tuned.store_variants(webgpu, {"matmul": (((1.0, 2.0), "wide"),)})
    (file,) = folder.glob("*.variants.json")
    text = file.read_text()
    data = json.loads(text)
    if damage == "cut":
        text = text[: len(text) // 2]
    elif damage == "changed":
        text = text.replace("wide", "tiny")
    elif damage == "other":
        data["format"] = "something else"
        text = json.dumps(data)
    elif damage == "not json":
        text = "\x00\x01"
    else:
        text += " " * (5 << 20)
    file.write_text(text)
    forget_variants()
    with pytest.warns(RuntimeWarning, match="not used"):
        assert tuned.stored_variants(webgpu) == {}


def test_another_driver_has_none(webgpu, folder):
    tuned.store_variants(webgpu, {"matmul": (((1.0, 2.0), "wide"),)})
    (file,) = folder.glob("*.variants.json")
    data = json.loads(file.read_text())
    data["identity"]["driver"] = "another"
    body = {"identity": data["identity"], "families": data["families"]}
    data["sha256"] = tuned.digest_of(body)
    file.write_text(json.dumps(data))
    forget_variants()
    assert tuned.stored_variants(webgpu) == {}


def test_the_command(webgpu, folder, monkeypatch, capsys):
    monkeypatch.setattr(tuning, "probes", lambda: iter(small(1)))
    assert main(["bench", "--tune", "--devices", webgpu, "--json"]) == 0
    (rows,) = json.loads(capsys.readouterr().out).values()
    assert rows[0]["best"] in rows[0]["us"]
    assert main(["bench", "--tune", "--devices", webgpu]) == 0
    shown = capsys.readouterr()
    assert "matmul" in shown.out
    assert f"{webgpu}:   0% " in shown.err  # no terminal: a line for each problem
    for only, families in (("^matmul$", {"matmul"}), ("nothing", set())):
        assert main(["bench", "--tune", "--devices", webgpu, "--json", "--only", only]) == 0
        (rows,) = json.loads(capsys.readouterr().out).values()
        assert {row["family"] for row in rows} == families
    for wrong in (["bench", "--tune", "--only", "("], ["bench", "--only", "matmul"]):
        assert main(wrong) == 2
        assert "--only" in capsys.readouterr().err
    assert main(["bench"]) == 2
    assert "no model" in capsys.readouterr().err


def test_the_sweep_is_legal():
    names = [probe.name for probe in probes()]
    assert len(set(names)) == len(names) > 20
    for probe in probes():
        probe.build().verify()


@pytest.mark.webgpu
def test_halves_are_timed_only_where_matrix_units_multiply_them(webgpu, folder):
    probe = TuneProbe(
        "halves", 4096, partial(tune_probes._product, 32, 32, 32, 1, False, "f16"), True
    )
    assert {probe.half for probe in probes()} == {True, False}
    result = tuning.tune(webgpu, which=[probe])
    assert bool(result) == bool(info_of(rlx.Device.parse(webgpu)).fragments)


def test_a_family_without_rivals():
    only = Family("one", (Variant("plain", 64, 0),), lambda problem, legal: legal[-1])
    assert only.choose((3,), chooser()).name == "plain"


@pytest.mark.webgpu
@pytest.mark.by_program
@looped("variant", [v.name for v in ROWS.variants])
def test_log_softmax_of_large_numbers_keeps_its_digits(webgpu, monkeypatch, variant):
    """Its result is small however large they are: the largest is taken off before anything is added."""
    monkeypatch.setenv("RLX_VARIANT", f"rows={variant}")
    x = np.random.default_rng(4).normal(size=(5, 330)) + 10000.0
    x, g = x.astype(np.float32), rlx.Graph()
    g.set_outputs(g.log_softmax(g.input("x", x.shape)))
    with rlx.compile(g, webgpu) as compiled:
        (result,) = compiled.run({"x": x})
    off = x.astype(np.float64) - x.max(1, keepdims=True)
    np.testing.assert_allclose(result, off - np.log(np.exp(off).sum(1, keepdims=True)), atol=2e-6)
