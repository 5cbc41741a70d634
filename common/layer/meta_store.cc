// Written by its owner.
