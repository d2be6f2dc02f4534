"""The network: paths and flows over connections whose weights change."""
