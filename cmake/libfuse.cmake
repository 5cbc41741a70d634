# The target cofferdam_libfuse: the system's libfuse where it is 3.17 or newer, else the static one that
# tools/get_libfuse builds. With neither, or with COFFERDAM_SYSTEM_LIBFUSE, the system's older one: fsproxy then has
# no passthrough and no O_TMPFILE, and says so.
option(COFFERDAM_SYSTEM_LIBFUSE "Use the system's libfuse even where it is older than 3.17 (no passthrough)" OFF)
set(COFFERDAM_LIBFUSE_ROOT ${PROJECT_SOURCE_DIR}/build/tools/libfuse/root CACHE PATH
  "Where tools/get_libfuse put its library")

add_library(cofferdam_libfuse INTERFACE)
pkg_check_modules(FUSE3 IMPORTED_TARGET fuse3)
if((NOT FUSE3_FOUND OR FUSE3_VERSION VERSION_LESS 3.17) AND NOT COFFERDAM_SYSTEM_LIBFUSE
   AND EXISTS ${COFFERDAM_LIBFUSE_ROOT}/lib/libfuse3.a)
  target_include_directories(cofferdam_libfuse SYSTEM INTERFACE ${COFFERDAM_LIBFUSE_ROOT}/include/fuse3)
  target_link_libraries(cofferdam_libfuse INTERFACE ${COFFERDAM_LIBFUSE_ROOT}/lib/libfuse3.a Threads::Threads
    ${CMAKE_DL_LIBS})
  message(STATUS "libfuse: static, of tools/get_libfuse")
elseif(FUSE3_FOUND)
  target_link_libraries(cofferdam_libfuse INTERFACE PkgConfig::FUSE3)
  message(STATUS "libfuse: the system's, ${FUSE3_VERSION}")
  if(FUSE3_VERSION VERSION_LESS 3.17 AND NOT COFFERDAM_SYSTEM_LIBFUSE)
    message(WARNING "libfuse ${FUSE3_VERSION} is older than 3.17: this build has no FUSE passthrough and no O_TMPFILE. "
      "Run tools/get_libfuse and configure again; -DCOFFERDAM_SYSTEM_LIBFUSE=ON says that this is what you want.")
  endif()
else()
  message(FATAL_ERROR "libfuse is missing: run tools/install_packages build")
endif()
