# libtorch as the torch wheel carries it: Libtorch::Libtorch for C++, Libtorch::Python for the extension, Libtorch::OpenMP for
# what runs in its threads.
#
# Torch's own package file is not used: it wants a CUDA toolkit when the wheel was built with CUDA, and sets global flags.
# Looks in Libtorch_ROOT, in CMAKE_PREFIX_PATH (torch.utils.cmake_prefix_path is right), then asks Python.
if(NOT Libtorch_INCLUDE_DIR)
  if(NOT Python_EXECUTABLE)
    find_package(Python QUIET COMPONENTS Interpreter)
  endif()
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE wheel OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(prefixes ${CMAKE_PREFIX_PATH})
  list(TRANSFORM prefixes APPEND "/../..")
  find_path(Libtorch_INCLUDE_DIR ATen/core/Tensor.h HINTS ${prefixes} ${wheel} PATHS ${Libtorch_FALLBACK}
            PATH_SUFFIXES include)
endif()

if(Libtorch_INCLUDE_DIR)
  cmake_path(GET Libtorch_INCLUDE_DIR PARENT_PATH Libtorch_PREFIX)
  set(Libtorch_LIBRARY_DIR "${Libtorch_PREFIX}/lib")
  file(STRINGS "${Libtorch_PREFIX}/version.py" Libtorch_VERSION REGEX "^__version__")
  string(REGEX REPLACE "^[^0-9]*([0-9.]+).*" "\\1" Libtorch_VERSION "${Libtorch_VERSION}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch
  REQUIRED_VARS Libtorch_INCLUDE_DIR
  VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE
    "gemloupe needs torch ${Libtorch_FIND_VERSION}, and no other version. Looked in Libtorch_ROOT, CMAKE_PREFIX_PATH and the packages of ${Python_EXECUTABLE}. Run: ${Python_EXECUTABLE} -m pip install torch==${Libtorch_FIND_VERSION}")
mark_as_advanced(Libtorch_INCLUDE_DIR)

if(Libtorch_FOUND AND NOT TARGET Libtorch::Libtorch)
  add_library(Libtorch::Libtorch INTERFACE IMPORTED)
  target_include_directories(Libtorch::Libtorch SYSTEM INTERFACE "${Libtorch_INCLUDE_DIR}")
  add_library(Libtorch::Python INTERFACE IMPORTED)
  target_include_directories(Libtorch::Python SYSTEM INTERFACE "${Libtorch_INCLUDE_DIR}/torch/csrc/api/include")
  target_link_libraries(Libtorch::Python INTERFACE Libtorch::Libtorch)
  foreach(part c10 torch_cpu torch_python)
    add_library(Libtorch::${part} SHARED IMPORTED)
    set_target_properties(Libtorch::${part} PROPERTIES IMPORTED_LOCATION "${Libtorch_LIBRARY_DIR}/lib${part}.so")
  endforeach()
  target_link_libraries(Libtorch::Libtorch INTERFACE Libtorch::torch_cpu Libtorch::c10)
  # The wheel's own OpenMP runtime, which libtorch computes with: the system's would be a second pool of threads.
  file(GLOB openmp "${Libtorch_LIBRARY_DIR}/libgomp*.so*" "${Libtorch_PREFIX}/../torch.libs/libgomp*.so*")
  list(GET openmp 0 openmp)
  add_library(Libtorch::OpenMP SHARED IMPORTED)
  set_target_properties(Libtorch::OpenMP PROPERTIES IMPORTED_LOCATION "${openmp}")
  target_link_libraries(Libtorch::Python INTERFACE Libtorch::torch_python)
endif()
