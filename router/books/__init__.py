"""What accounts keep between requests: the ledger and its journal, virtual keys, the meters."""
