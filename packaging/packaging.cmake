# Installing and packages: `cmake --install build --prefix DIR`, `ninja -C build uninstall`, and `cpack` in the build folder, which makes
# five .deb of it (scripts/test-packages installs and uses them):
#   ft-runtime  ftrun                         no LLVM, no compiler
#   ft-mpi      the plug-in for several ranks needs ft-runtime and Open MPI
#   ft          ftc, ftopt, examples, docs    needs ft-runtime
#   libft0      libft.so.0                    for programs that use ft.h
#   libft-dev   ft.h, libft.so, ft.pc, CMake's package
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS ftrun RUNTIME COMPONENT runtime)
if(TARGET ft-mpi)
  install(TARGETS ft-mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ft COMPONENT mpi)
endif()
install(TARGETS ftc ftopt RUNTIME COMPONENT compiler)
install(TARGETS ft EXPORT ft LIBRARY COMPONENT library NAMELINK_COMPONENT development INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES runtime/ft.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

# man pages and completion are what the programs print of their own tables of flags
set(programs ftc ftopt ftrun)
if(FT_SANITIZE OR FT_FUZZ)
  set(programs "")
endif()
foreach(program ${programs})
  set(component compiler)
  if(program STREQUAL ftrun)
    set(component runtime)
  endif()
  set(forms ${CMAKE_BINARY_DIR}/forms/${program})
  add_custom_command(TARGET ${program} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E make_directory ${forms}
    COMMAND ${program} --help=man > ${forms}/${program}.1
    COMMAND ${program} --help=bash > ${forms}/${program}
    COMMAND ${program} --help=zsh > ${forms}/_${program}
    COMMAND ${program} --help=fish > ${forms}/${program}.fish
    COMMENT "man page and completion of ${program}" VERBATIM)
  install(FILES ${forms}/${program}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
  install(FILES ${forms}/${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT ${component})
  install(FILES ${forms}/_${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT ${component})
  install(FILES ${forms}/${program}.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT ${component})
endforeach()

install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT compiler)
install(DIRECTORY packaging/editors DESTINATION ${CMAKE_INSTALL_DATADIR}/ft COMPONENT compiler)
install(DIRECTORY frontend/std DESTINATION ${CMAKE_INSTALL_DATADIR}/ft COMPONENT compiler) # where editors go to its definitions
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT compiler FILES_MATCHING PATTERN "*.md")
install(FILES README.md CHANGELOG.md SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT compiler)
foreach(component runtime mpi compiler library development)
  set(package_runtime ft-runtime)
  set(package_mpi ft-mpi)
  set(package_compiler ft)
  set(package_library libft0)
  set(package_development libft-dev)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package_${component}} RENAME copyright COMPONENT ${component})
endforeach()

file(RELATIVE_PATH FT_PC_UP /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix) # from where the file lies, so the folder may be moved
configure_file(packaging/ft.pc.in ${CMAKE_BINARY_DIR}/ft.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/ft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
install(EXPORT ft NAMESPACE ft:: FILE ft-config.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ft COMPONENT development)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/ft-config-version.cmake VERSION ${FT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/ft-config-version.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ft COMPONENT development)

# what the last installation wrote, and no more
add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DMANIFEST=${CMAKE_BINARY_DIR}/install_manifest.txt -P ${CMAKE_SOURCE_DIR}/packaging/uninstall.cmake)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ft)
set(CPACK_PACKAGE_VERSION ${FT_VERSION})
set(CPACK_PACKAGE_CONTACT "The ft authors <ft@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL runtime mpi compiler library development)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/lib)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME ft-runtime)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "libdnnl2, libopenblas0-openmp, libjpeg62-turbo, libspng0")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "ft-mpi")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "trains neural networks that ft has compiled\n ftrun: no compiler, no Python and no framework in it.")
set(CPACK_DEBIAN_MPI_PACKAGE_NAME ft-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_SECTION science)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "ft-runtime (= ${FT_VERSION}), openmpi-bin")
set(CPACK_COMPONENT_MPI_DESCRIPTION "joins several processes of ftrun by MPI\n libft-mpi.so, which ftrun opens where it runs as several ranks.")
set(CPACK_DEBIAN_COMPILER_PACKAGE_NAME ft)
set(CPACK_DEBIAN_COMPILER_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMPILER_PACKAGE_DEPENDS "ft-runtime (= ${FT_VERSION}), binutils")
set(CPACK_COMPONENT_COMPILER_DESCRIPTION "compiles neural networks with their training into one artifact\n ftc and ftopt, with examples and documentation.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libft0)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "libdnnl2, libopenblas0-openmp")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "runs and trains compiled neural networks in other programs\n libft.so.0.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libft-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libft0 (= ${FT_VERSION})")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "header and build files of libft\n ft.h, pkg-config and CMake files.")
include(CPack)
