"""What looks at whole rows: softmax, norms, reductions, running sums, sorting."""
