# One static library a folder of src/gemloupe; each may include itself and the folders it names, no others.
# TORCH: its code uses ATen, and is compiled with ATen's precompiled header.
function(gemloupe_folder name)
  cmake_parse_arguments(arg "TORCH" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "gemloupe_folder(${name}): unknown ${arg_UNPARSED_ARGUMENTS}; it knows TORCH, SOURCES, DEPENDS, LINK.")
  endif()
  add_library(gemloupe_${name} STATIC ${arg_SOURCES})
  add_library(gemloupe::${name} ALIAS gemloupe_${name})
  target_include_directories(gemloupe_${name} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src;${PROJECT_BINARY_DIR}/include>")
  list(TRANSFORM arg_DEPENDS PREPEND gemloupe_)
  target_link_libraries(gemloupe_${name} PUBLIC ${arg_DEPENDS} ${arg_LINK})
  gemloupe_compile_options(gemloupe_${name})
  if(arg_TORCH)
    gemloupe_use_torch(gemloupe_${name} PUBLIC)
  endif()
  set_property(GLOBAL APPEND PROPERTY GEMLOUPE_FOLDERS gemloupe_${name})
endfunction()

# -fPIC everywhere, programs included: a precompiled header only fits code compiled with the same options.
function(gemloupe_compile_options target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC -Wall -Wextra -Wpedantic -Wshadow -Wno-unknown-pragmas
    -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow)  # GCC 12 warns wrongly at "text" + std::string
  if(GEMLOUPE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${GEMLOUPE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
    target_link_options(${target} PUBLIC -fsanitize=${GEMLOUPE_SANITIZE})
  endif()
endfunction()

# Links libtorch and shares the one precompiled header, which is compiled with the first target that asks for it.
function(gemloupe_use_torch target scope)
  if(NOT TARGET gemloupe_pch)
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/pch.cpp" CONTENT "// Carries the precompiled header.\n")
    add_library(gemloupe_pch OBJECT "${PROJECT_BINARY_DIR}/pch.cpp")
    target_link_libraries(gemloupe_pch PRIVATE Libtorch::Libtorch)
    target_precompile_headers(gemloupe_pch PRIVATE <ATen/ATen.h>)
    gemloupe_compile_options(gemloupe_pch)
  endif()
  target_link_libraries(${target} ${scope} Libtorch::Libtorch)
  target_precompile_headers(${target} REUSE_FROM gemloupe_pch)
endfunction()

# Every folder in one shared library, with the facade, src/gemloupe/*.cpp, on top.
function(gemloupe_shared_library)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/gemloupe/*.cpp")
  get_property(folders GLOBAL PROPERTY GEMLOUPE_FOLDERS)
  add_library(gemloupe SHARED ${sources})
  add_library(gemloupe::gemloupe ALIAS gemloupe)
  target_include_directories(gemloupe PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src;${PROJECT_BINARY_DIR}/include>" "$<INSTALL_INTERFACE:include>")
  target_compile_features(gemloupe PUBLIC cxx_std_20)
  target_link_libraries(gemloupe PUBLIC nlohmann_json::nlohmann_json PRIVATE ${folders})
  list(JOIN folders "," whole)
  set_target_properties(gemloupe PROPERTIES
    LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,${whole}"
    SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
  target_link_options(gemloupe PRIVATE -Wl,--no-undefined)
  gemloupe_compile_options(gemloupe)
  gemloupe_use_torch(gemloupe PUBLIC)
endfunction()

# tests/NAME/*.cpp against the folder they mirror: one doctest program a folder.
function(gemloupe_tests name)
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp")
  if(NOT sources)
    return()
  endif()
  add_executable(gemloupe_${name}_tests ${sources} "${CMAKE_CURRENT_SOURCE_DIR}/main.cpp")
  target_link_libraries(gemloupe_${name}_tests PRIVATE gemloupe_${name} doctest::doctest)
  target_include_directories(gemloupe_${name}_tests PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  gemloupe_compile_options(gemloupe_${name}_tests)
  get_target_property(links gemloupe_${name} LINK_LIBRARIES)
  if(Libtorch::Libtorch IN_LIST links)
    gemloupe_use_torch(gemloupe_${name}_tests PRIVATE)
  endif()
  add_test(NAME ${name} COMMAND gemloupe_${name}_tests)
endfunction()

# All our headers in one file, for clang-tidy (the tidy preset); each folder's .cpp files show that they stand alone.
function(gemloupe_tidy)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/src/*.h")
  list(TRANSFORM headers REPLACE "(.+)" "#include \"\\1\"\n")
  list(JOIN headers "" text)
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/headers.cpp" CONTENT "${text}")
  add_library(gemloupe_tidy OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/headers.cpp")
  target_link_libraries(gemloupe_tidy PRIVATE gemloupe)
  gemloupe_compile_options(gemloupe_tidy)
  set_target_properties(gemloupe_tidy PROPERTIES CXX_CLANG_TIDY "${GEMLOUPE_TIDY}")
endfunction()
