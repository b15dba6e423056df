"""What ZooKeeper and Oxia have in common: the tree of nodes that BookKeeper's own processes use, paths and bytes."""
