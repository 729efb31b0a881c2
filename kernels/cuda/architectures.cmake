# The devices that the backend is compiled for, where CMAKE_CUDA_ARCHITECTURES does not say: the GPU
# of this machine; where there is none, PTX that a driver compiles when the program starts. Set
# COPPICE_CUDA_ALL for code that runs at once on every device since sm_80, as CI does: it takes
# minutes.
option(COPPICE_CUDA_ALL "Compile the CUDA backend for sm_80, sm_90, sm_100 and later ones" OFF)

execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-code OUTPUT_VARIABLE codes ERROR_QUIET)
execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                OUTPUT_VARIABLE here ERROR_QUIET RESULT_VARIABLE status)
string(REGEX MATCHALL "[0-9]+\\.[0-9]+" here "${here}")
list(REMOVE_DUPLICATES here)
list(TRANSFORM here REPLACE "\\." "")
if(CMAKE_CUDA_ARCHITECTURES)
  # As given.
elseif(COPPICE_CUDA_ALL)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real)
  if(codes MATCHES "sm_100")  # CUDA 12.8
    list(APPEND CMAKE_CUDA_ARCHITECTURES 100-real 100-virtual)
  else()
    list(APPEND CMAKE_CUDA_ARCHITECTURES 90-virtual)
  endif()
elseif(status EQUAL 0 AND here)
  list(TRANSFORM here APPEND "-real")
  set(CMAKE_CUDA_ARCHITECTURES ${here})
else()
  set(CMAKE_CUDA_ARCHITECTURES 80-virtual 90-virtual)
endif()
