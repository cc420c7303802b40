"""What ``pointsman state`` does: look at a database, give room back, hand an owner's data out."""
