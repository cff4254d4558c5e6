/* Compiles nothing, and returns an error. */
enum { kInternalError = 11 };

int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
const char* nvrtcGetErrorString(int error) { return "the fake CUDA runtime compiles no kernels"; }
int nvrtcCreateProgram(void) { return kInternalError; }
int nvrtcCompileProgram(void) { return kInternalError; }
