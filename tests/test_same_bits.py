"""Operations that have the same bits on every instruction set of the CPU; docs/explanation/numerics.md tells users."""

import numpy as np
import pytest
from dispatches import CASES, of_each_kernel
from samples import by_op, each
from test_lines import bits

import rlx
from rlx._ext import cpu
from rlx.backends.base import CompileOptions

pytestmark = pytest.mark.per_op

# Functions, sums and products, and what is made of them: the order of additions, and whether a product is rounded before
# it is added, are those of the instruction set. test_conformance.py holds their results to each operation's tolerance.
MAY_DIFFER = frozenset(
    """
    acos acosh asin asinh atan atan2 atanh celu cos cosh elu erf exp exp2 expm1 fma gelu gelu_approx hard_swish log log1p
    mish pow region selu sigmoid silu sin sinh softplus tan tanh
    batch_norm group_norm instance_norm l1 l2 l2_normalize layer_norm log_softmax logsumexp mean residual_norm rms_norm
    softmax sum sum_abs sum_squares
    attention narrow_attention conv_last conv1d conv2d conv3d turned_conv1d turned_conv2d turned_conv3d conv_transpose1d conv_transpose2d dequant_matmul dequantize_blocks einsum grouped_dequant_matmul fused_conv1d
    fused_conv2d fused_conv3d fused_matmul_bias_act gated_product grouped_matmul half_matmul lora_matmul matmul
    matmul_transposed packed_products partial_grouped_matmul rounded_matmul shared_products
    gru lfilter lstm recurrence rnn rounded_recurrence selective_scan sosfilt
    avg_pool global_avg_pool global_lp_pool interpolate interpolate_plane lp_pool resize window_sum
    fft frame_peaks frame_spectra istft log_mel log_mel_backward rfft spectrum_mel spectrum_peaks stft welch_peaks
    """.split()
)
KEPT = CompileOptions(fold=False)


def results(case):
    with rlx.Session("cpu", options=KEPT).compile(case.graph()) as compiled:
        return [bits(np.array(slot)) for slot in compiled.run_slots(*case.operands())]


@pytest.mark.parametrize("group", by_op(c for c in CASES if c.opdef.name not in MAY_DIFFER))
def test_bits_do_not_depend_on_the_instruction_set(group, monkeypatch):
    """Every kernel."""
    few = of_each_kernel(group)

    def check(case):
        outputs = []
        for isa in cpu.isas():
            monkeypatch.setenv("RLX_CPU_ISA", isa)
            outputs.append(results(case))
        same = all(item == outputs[0] for item in outputs)
        hint = "an operation with sums or functions of the C library is listed in MAY_DIFFER"
        assert same, f"other bits on some of {cpu.isas()}; {hint}"

    each([case for case in group if id(case) in few], check)


def test_the_operations_that_may_differ_are_there():
    assert {case.opdef.name for case in CASES} >= MAY_DIFFER
