# Completion for shells and the manual page: the installed program writes them.
function(install_text folder file)
  install(CODE "
    set(root \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
    set(text \"\${root}/${folder}/${file}\")
    message(STATUS \"Writing: \${text}\")
    file(MAKE_DIRECTORY \"\${root}/${folder}\")
    execute_process(
      COMMAND \"\${root}/${CMAKE_INSTALL_BINDIR}/pipewright\" ${ARGN}
      OUTPUT_FILE \"\${text}\" COMMAND_ERROR_IS_FATAL ANY)
    list(APPEND CMAKE_INSTALL_MANIFEST_FILES
      \"\${CMAKE_INSTALL_PREFIX}/${folder}/${file}\")"
    COMPONENT pipewright)
endfunction()

install_text(share/man/man1 pipewright.1 man)
install_text(share/bash-completion/completions pipewright completion bash)
install_text(share/zsh/site-functions _pipewright completion zsh)
install_text(share/fish/vendor_completions.d pipewright.fish completion fish)
