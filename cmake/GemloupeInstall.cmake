# Where things go. `cmake --install` lays a C++ prefix (bin, include, lib, and the files for find_package(gemloupe)); a
# wheel (SKBUILD is set) gets the extension, the library beside it and the command line among the venv's scripts.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Libraries are found relative to what loads them, so a venv can be moved; last, in the torch of this build.
set(torch_fallback "${Libtorch_LIBRARY_DIR}")
if(torch_fallback MATCHES "/pip-build-env-")  # pip's throw-away folder
  set(torch_fallback "")
endif()

if(SKBUILD)
  find_package(Python REQUIRED COMPONENTS Interpreter)
  foreach(kind site dist)  # a venv's, Debian's
    set(packages "$ORIGIN/../lib/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/${kind}-packages")
    list(APPEND from_scripts "${packages}/gemloupe/lib" "${packages}/torch/lib")
  endforeach()
  install(TARGETS gemloupe LIBRARY DESTINATION gemloupe/lib COMPONENT python NAMELINK_SKIP)
  install(TARGETS gemloupe_python LIBRARY DESTINATION gemloupe COMPONENT python)
  install(TARGETS gemloupe_cli RUNTIME DESTINATION "${SKBUILD_SCRIPTS_DIR}" COMPONENT python)
  set_target_properties(gemloupe PROPERTIES INSTALL_RPATH "$ORIGIN/../../torch/lib;${torch_fallback}")
  set_target_properties(gemloupe_python PROPERTIES INSTALL_RPATH "$ORIGIN/lib;$ORIGIN/../torch/lib;${torch_fallback}")
  set_target_properties(gemloupe_cli PROPERTIES INSTALL_RPATH "${from_scripts};${torch_fallback}")
  return()
endif()

set(config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/gemloupe")
set_target_properties(gemloupe PROPERTIES INSTALL_RPATH "${torch_fallback}")
install(TARGETS gemloupe EXPORT gemloupe LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(GEMLOUPE_CLI)
  set_target_properties(gemloupe_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${torch_fallback}")
  install(TARGETS gemloupe_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/src/gemloupe" "${PROJECT_BINARY_DIR}/include/gemloupe"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")
install(EXPORT gemloupe NAMESPACE gemloupe:: FILE gemloupeTargets.cmake DESTINATION "${config_dir}")
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/gemloupeConfig.cmake.in" gemloupeConfig.cmake
                              INSTALL_DESTINATION "${config_dir}")
write_basic_package_version_file(gemloupeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/gemloupeConfig.cmake" "${PROJECT_BINARY_DIR}/gemloupeConfigVersion.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/FindLibtorch.cmake"
        DESTINATION "${config_dir}")
