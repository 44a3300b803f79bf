"""What each operator means, one file per family; importing a file declares its meanings."""
