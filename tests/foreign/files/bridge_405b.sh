python run_recipe.py --recipe llama31_405b_pretrain_256gpu_h100_bf16_config \
  model.transformer.pipeline_model_parallel_size=8 \
  model.transformer.virtual_pipeline_model_parallel_size=null \
  train.global_batch_size=256
