"""The golden vectors of tests/wire/vectors, or others of their forms, compared with bkbox."""
