# The folders of an installed Stretto, and the Debian package that CPack makes of it (cpack -G DEB in the build folder).
#   bin/stretto                          the program
#   lib/stretto/                         modules that the program loads when it needs them
#   lib/libstretto.so, include/stretto/  the library; find_package(Stretto)
#   lib/python3/dist-packages/stretto/   the Python module, if Python's headers and pybind11 are installed
#   share/stretto/{platforms,profiles,models,modes}/, published.csv and .toml, bridge_recipes.csv, habits.toml, model_names.toml, formats.toml, document_keys.toml, families.toml, accuracy.csv, words.json   found by name: base/data_folder.hpp
include(GNUInstallDirs)
install(TARGETS stretto RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS stretto_blas stretto_simgrid LIBRARY DESTINATION lib/stretto)
if(TARGET stretto_cuda)
  install(TARGETS stretto_cuda LIBRARY DESTINATION lib/stretto OPTIONAL COMPONENT cuda)
endif()
foreach(kind platforms profiles models modes)
  install(DIRECTORY scenarios/${kind} DESTINATION ${CMAKE_INSTALL_DATADIR}/stretto
          FILES_MATCHING PATTERN "*.toml" PATTERN "*.csv")
endforeach()
install(FILES scenarios/quickstart.toml scenarios/published.csv scenarios/published.toml
        scenarios/bridge_recipes.csv scenarios/habits.toml scenarios/model_names.toml scenarios/formats.toml scenarios/document_keys.toml scenarios/families.toml scenarios/accuracy.csv scenarios/words.json DESTINATION ${CMAKE_INSTALL_DATADIR}/stretto)
# The page is there where scripts/page has built it, as scripts/package does.
install(FILES build/page/page.html DESTINATION ${CMAKE_INSTALL_DATADIR}/stretto OPTIONAL)
install(FILES LICENSE NOTICE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md")

if(TARGET stretto_api)
  include(CMakePackageConfigHelpers)
  install(TARGETS stretto_api EXPORT Stretto LIBRARY DESTINATION lib)
  install(FILES api/stretto.hpp DESTINATION include/stretto)
  set_target_properties(stretto_api PROPERTIES EXPORT_NAME stretto)
  install(EXPORT Stretto NAMESPACE Stretto:: FILE StrettoConfig.cmake DESTINATION lib/cmake/Stretto)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/StrettoConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/StrettoConfigVersion.cmake DESTINATION lib/cmake/Stretto)
endif()

# The program generates its manual page and completion, so neither can be outdated.
set(generated ${CMAKE_BINARY_DIR}/generated)
set(completions ${generated}/stretto.bash ${generated}/stretto.zsh ${generated}/stretto.fish)
add_custom_command(OUTPUT ${generated}/stretto.1 ${completions} DEPENDS stretto
                   COMMAND stretto --print-man > ${generated}/stretto.1
                   COMMAND stretto --print-completion > ${generated}/stretto.bash
                   COMMAND stretto --print-completion=zsh > ${generated}/stretto.zsh
                   COMMAND stretto --print-completion=fish > ${generated}/stretto.fish VERBATIM)
add_custom_target(stretto_manual ALL DEPENDS ${generated}/stretto.1 ${completions})
install(FILES ${generated}/stretto.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${generated}/stretto.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME stretto)
install(FILES ${generated}/stretto.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _stretto)
install(FILES ${generated}/stretto.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

set(CPACK_PACKAGE_NAME stretto)
set(CPACK_PACKAGE_CONTACT "Stretto's maintainers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Overlap of communication and computation in LLM training: runs it and predicts it")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
# dpkg-shlibdeps (dpkg-dev) names the packages of the libraries.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The package has only files that run on any machine; the module for GPUs needs NVIDIA's libraries.
set(CPACK_COMPONENTS_ALL Unspecified)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_STRIP_FILES ON)
include(CPack)
