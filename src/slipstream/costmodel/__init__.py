"""What a step costs, and so where along the batch size speculation stops paying."""
