"""Operations that carry a state from step to step: recurrent layers, recursive filters, state-space scans."""
