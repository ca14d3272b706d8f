"""Operations on whole rows: softmax, norms, reductions, running sums, sorting."""
