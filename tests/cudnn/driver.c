// A CUDA driver for machines that have none, as far as cuDNN needs one to make a plan: it compiles kernels for a described
// device and hands them to the driver. Everything else, which CMake lists from the toolkit's stub, says that this is one.
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuLibraryLoadData(void** library) {
  *library = (void*)0x1000;
  return 0;
}
int cuLibraryUnload(void) { return 0; }
int cuLibraryGetKernel(void** kernel) {
  *kernel = (void*)0x2000;
  return 0;
}
int cuKernelGetFunction(void** function) {
  *function = (void*)0x3000;
  return 0;
}
int cuKernelSetAttribute(void) { return 0; }
int cuKernelGetAttribute(int* value) {
  *value = 0;
  return 0;
}
