"""What goes wrong in the simulated cluster, and how it is put right again."""
