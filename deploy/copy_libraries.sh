# The shared libraries that a relocatable tree carries. Source this file.

# copy_libraries LIB GLIBC FILE...: copies what the programs and libraries FILE... load into the folder LIB, stripped. Fails if one is missing.
# The loader and the C library go to the folder GLIBC, or nowhere if GLIBC is empty. CUDA's libraries are the host's.
copy_libraries() {
  local lib=$1 glibc=$2 library
  shift 2
  ldd "$@" 2>/dev/null | awk '/not found/ && $1 !~ /^lib(cuda|cublas|nv)/ { print "copy_libraries: " $1 " is missing" > "/dev/stderr"; failed = 1 }
    END { exit failed }' || return 1
  ldd "$@" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// && $2 ~ /^\(/ { print $1 }' |
    sort -u | while read -r library; do
    case "$(basename "$library")" in
      libcublas* | libcuda* | libnv*) ;;
      ld-linux* | libc.so* | libm.so* | libpthread.so* | libdl.so* | librt.so* | libresolv.so* | libmvec.so*)
        [ -z "$glibc" ] || cp -L "$library" "$glibc/" ;;
      *)
        install -m 644 "$library" "$lib/"
        strip --strip-unneeded "$lib/$(basename "$library")" ;;
    esac
  done
}

# isolate_libraries LIB FILE...: names the libraries in the folder LIB as nothing else asks for them, and makes them and the programs FILE...
# load each other by these names. A Python process has other modules: a library of ours would otherwise stand for one of theirs of the same
# name, such as a newer libssl.so.3, and theirs for ours. Every host of a manylinux wheel has the libraries of the compiler, which such
# modules share: they are removed.
isolate_libraries() {
  local lib=$1 name replaced=() file
  shift
  rm "$lib"/lib{stdc++,gcc_s}.so.*
  for name in $(cd "$lib" && echo *.so.*); do
    [[ $name == libkaon* ]] || replaced+=(--replace-needed "$name" "${name/.so./-kaon.so.}")
  done
  for file in "$@" "$lib"/*.so.*; do
    [ -L "$file" ] || patchelf "${replaced[@]}" "$file"
  done
  for file in "$lib"/*.so.*; do
    name=${file##*/}
    [[ $name == libkaon* ]] || {
      patchelf --set-soname "${name/.so./-kaon.so.}" "$file"
      mv "$file" "$lib/${name/.so./-kaon.so.}"
    }
  done
}
