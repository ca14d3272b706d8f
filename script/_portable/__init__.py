"""What script/portable is made of: one file for what is built, one for each system that it is run on."""
