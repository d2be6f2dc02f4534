"""The ledger: stock of warehouses through a long sequence of transactions."""
