"""Ways back into torch: ``ExportedProgram``, graph modules and inductor."""
