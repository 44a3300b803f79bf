"""What has to hold before kernels are called that trust their caller."""
