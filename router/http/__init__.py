"""HTTP on the clients' side: the route table, one file per API family, one error envelope."""
