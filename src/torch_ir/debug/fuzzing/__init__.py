"""Random programs of all operators that have a denotation, and backends tried with them."""
