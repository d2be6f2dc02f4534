"""Where `dg scaffold defs` writes components in a checkout; `definitions` loads them."""
